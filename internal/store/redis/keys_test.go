package redis

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/wire"
)

// slot computes a key's slot by the cluster specification:
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
func slot(key string) int {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	var crc uint16
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			if carry := crc&0x8000 != 0; carry {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % 16384
}

// TestPartitions wants each partition in its own part of the slots, for any namespace, and counters
// in all of them.
func TestPartitions(t *testing.T) {
	must.EqualOrEnd(t, slot("x{123456789}y"), 0x31c3, "slot, as the specification has it")
	k := keys{partitions: clusterPartitions}
	for _, namespace := range []string{"a", "ns", "default", "shop.eu-1", strings.Repeat("x", wire.MaxNamespace)} {
		var parts []int
		for p := range uint32(clusterPartitions) {
			parts = append(parts, slot(k.prefix(namespace, p))*clusterPartitions/16384)
		}
		slices.Sort(parts)
		must.Equal(t, len(slices.Compact(parts)), clusterPartitions, "%s: partitions in parts %v of the slots", namespace, parts)
	}
	count := make(map[uint32]int)
	for i := range 256 * clusterPartitions {
		count[k.partition(wire.ID{3: byte(i >> 8), 12: byte(i)})]++
	}
	for p, n := range count {
		must.Between(t, n, 128, 512, "counters in partition %d, about 256", p)
	}
	must.Equal(t, len(count), clusterPartitions, "partitions with counters")
}
