package node

import "weir/internal/wire"

// partitions is a set of the partitions that a store may divide a namespace into: a bit for each.
//
// While a partition fails, batches with anything for it stay, because they must be repeated
// unchanged. To keep them few, nothing else is sent to the partition until they are answered: its
// keys' hits gather in the table, and requests are decided without the backend.
type partitions uint32

// partitionOf returns the set with the partition of a key.
func partitionOf(id wire.ID) partitions { return 1 << id.Partition() }
