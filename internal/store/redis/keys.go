package redis

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"weir/internal/store"
	"weir/internal/wire"
)

// clusterPartitions is how many partitions a namespace has in a cluster, a power of 2 up to 64. With more
// partitions, larger clusters share a namespace evenly. With fewer, a batch costs fewer scripts.
const clusterPartitions = wire.Partitions

// keys names what a store keeps, in so many partitions of each namespace.
type keys struct{ partitions uint32 }

// partition is where all limits of a key are.
func (k keys) partition(id wire.ID) uint32 {
	if k.partitions == 1 {
		return 0
	}
	return id.Partition() % k.partitions
}

// prefix begins all keys of a partition. Its hash tag tells where in a cluster it is: a namespace,
// and three digits to base 4. As CRC-16 is linear, these put the partitions of every namespace at
// even distances among the slots.
func (k keys) prefix(namespace string, partition uint32) string {
	if k.partitions == 1 {
		return "weir:{" + namespace + "}:"
	}
	return "weir:{" + namespace + "/" + strconv.FormatUint(uint64(64+partition*(64/k.partitions)), 4)[1:] + "}:"
}

const counterPart = "counter:"

// counters matches the keys of a namespace's counters, and others; [keys.parse] tells.
func (k keys) counters(namespace string) string {
	if k.partitions == 1 {
		return k.prefix(namespace, 0) + counterPart + "*"
	}
	return "weir:{" + namespace + "/*}:" + counterPart + "*"
}

// countersOf matches the keys of one key's counters.
func (k keys) countersOf(namespace string, id wire.ID) string {
	return k.prefix(namespace, k.partition(id)) + counterPart + hex.EncodeToString(id[:]) + ":*"
}

func (k keys) counter(namespace string, c wire.LimitCounter) string {
	key := make([]byte, 0, 160)
	key = append(key, k.prefix(namespace, k.partition(c.ID))...)
	key = append(key, counterPart...)
	key = hex.AppendEncode(key, c.ID[:])
	for _, n := range []uint64{uint64(c.Kind), uint64(c.Ordinal), c.WidthMillis, c.Precision}[:numbers(c)] {
		key = strconv.AppendUint(append(key, ':'), n, 10)
	}
	return string(key)
}

// numbers is how many numbers a counter's key has.
func numbers(c wire.LimitCounter) int {
	if c.Precision == 0 {
		return 3
	}
	return 4
}

// sender is the key of a sender's record in a partition. If a take brings a push to a partition
// several times, there is a record for each time. round tells them apart.
func (k keys) sender(namespace string, partition uint32, sender uint64, round string) string {
	return k.prefix(namespace, partition) + "sender:" + hexOf(sender) + round
}

func hexOf(id uint64) string { return fmt.Sprintf("%016x", id) }

// lock is the key of a lock of a partition.
func (k keys) lock(namespace string, partition uint32) string {
	return k.prefix(namespace, partition) + "lock"
}

// Places of a fleet's keys.
const (
	nearIndex   = 1
	heardIndex  = 3
	silentIndex = 6
)

// fleet are the keys of a namespace's fleet.
func (k keys) fleet(namespace string) []string {
	prefix := k.prefix(namespace, 0) + "fleet"
	return []string{prefix, prefix + ":near", prefix + ":parts", prefix + ":heard", prefix + ":divisors", prefix + ":answered", prefix + ":silent"}
}

func (k keys) nodes(namespace string) string { return "weir:{" + namespace + "}:nodes" }

func (k keys) overrides(namespace string) string { return "weir:{" + namespace + "}:overrides" }

func (k keys) reports(namespace string) string { return "weir:{" + namespace + "}:reports" }

// accountant is the key of what a sender has sent last of what keys have used.
func (k keys) accountant(namespace string, sender uint64) string {
	return fmt.Sprintf("weir:{%s}:used:sender:%016x", namespace, sender)
}

// used is the key of what keys have used on a day.
func (k keys) used(namespace string, day uint32) string {
	return "weir:{" + namespace + "}:used:" + strconv.FormatUint(uint64(day), 10)
}

func (k keys) told(namespace string) string { return "weir:{" + namespace + "}:told" }

// parse takes apart what counter has made, and nothing else.
func (k keys) parse(namespace, key string) (c wire.LimitCounter, ok bool) {
	_, name, _ := strings.Cut(key, "}:"+counterPart)
	parts := strings.Split(name, ":")
	if len(parts) < 4 || len(parts) > 5 || len(parts[0]) != hex.EncodedLen(len(c.ID)) {
		return c, false
	}
	_, errID := hex.Decode(c.ID[:], []byte(parts[0]))
	kind, errKind := strconv.ParseUint(parts[1], 10, 8)
	ordinal, errOrdinal := strconv.ParseUint(parts[2], 10, 8)
	width, errWidth := strconv.ParseUint(parts[3], 10, 64)
	var precision uint64
	var errPrecision error
	if len(parts) == 5 {
		precision, errPrecision = strconv.ParseUint(parts[4], 10, 64)
	}
	if errors.Join(errID, errKind, errOrdinal, errWidth, errPrecision) != nil {
		return c, false
	}
	c.Kind, c.Ordinal, c.WidthMillis, c.Precision = uint8(kind), uint8(ordinal), width, precision
	return c, store.ValidCounter(c) && k.counter(namespace, c) == key
}
