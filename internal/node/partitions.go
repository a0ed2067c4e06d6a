package node

import "weir/internal/wire"

// partitions are a set of those that a store may divide a namespace into: a bit for each.
//
// While one fails, the batches stay that have anything for it, as they must be sent again unchanged. So
// that they stay few, nothing else is sent there until they are answered: hits of its keys pile up in the
// table, and requests are decided without the backend.
type partitions uint32

// partitionOf is the set of the partition that a key is in.
func partitionOf(id wire.ID) partitions { return 1 << id.Partition() }
