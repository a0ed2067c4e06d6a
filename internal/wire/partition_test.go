package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

func TestPartition(t *testing.T) {
	for i := range uint64(1000) {
		hash := sha256.Sum256(binary.AppendUvarint(nil, i))
		id := ID(hash[:16])
		if got, want := id.Partition(), crc32.ChecksumIEEE(id[:])%Partitions; got != want {
			t.Fatalf("%x is in partition %d, want %d", id, got, want)
		}
	}
}
