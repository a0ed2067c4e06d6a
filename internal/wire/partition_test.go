package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"weir/internal/must"
)

func TestPartition(t *testing.T) {
	for i := range uint64(1000) {
		hash := sha256.Sum256(binary.AppendUvarint(nil, i))
		id := ID(hash[:16])
		must.EqualOrEnd(t, id.Partition(), crc32.ChecksumIEEE(id[:])%Partitions, "%x is in partition", id)
	}
}
