package redis

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"weir/internal/store"
	"weir/internal/wire"
)

// clusterPartitions is the number of a namespace's partitions in a cluster: a power of 2 up to 64.
// With more partitions, larger clusters share a namespace evenly. With fewer, a batch needs fewer
// scripts.
const clusterPartitions = wire.Partitions

// keys returns the names of keys in Redis for a number of partitions.
type keys struct{ partitions uint32 }

// partition returns the partition of all limits of a key.
func (k keys) partition(id wire.ID) uint32 {
	if k.partitions == 1 {
		return 0
	}
	return id.Partition() % k.partitions
}

// prefix returns the prefix of all keys of a partition. Its hash tag decides the slot in a cluster:
// a namespace, and three digits to base 4. CRC-16 is linear, so these digits spread the partitions
// of every namespace evenly over the slots.
func (k keys) prefix(namespace string, partition uint32) string {
	return string(k.appendPrefix(make([]byte, 0, 160), namespace, partition))
}

func (k keys) appendPrefix(to []byte, namespace string, partition uint32) []byte {
	to = append(append(to, "weir:{"...), namespace...)
	if k.partitions > 1 {
		to = append(append(to, '/'), strconv.FormatUint(uint64(64+partition*(64/k.partitions)), 4)[1:]...)
	}
	return append(to, "}:"...)
}

const counterPart = "counter:"

// counters returns a pattern for the keys of a namespace's counters. It may match other keys too,
// so [keys.parse] must check.
func (k keys) counters(namespace string) string {
	if k.partitions == 1 {
		return k.prefix(namespace, 0) + counterPart + "*"
	}
	return "weir:{" + namespace + "/*}:" + counterPart + "*"
}

// countersOf returns a pattern for the keys of one key's counters.
func (k keys) countersOf(namespace string, id wire.ID) string {
	return k.prefix(namespace, k.partition(id)) + counterPart + hex.EncodeToString(id[:]) + ":*"
}

func (k keys) counter(namespace string, c wire.LimitCounter) string {
	key := append(k.appendPrefix(make([]byte, 0, 160), namespace, k.partition(c.ID)), counterPart...)
	key = hex.AppendEncode(key, c.ID[:])
	for _, n := range []uint64{uint64(c.Kind), uint64(c.Ordinal), c.WidthMillis, c.Precision}[:numbers(c)] {
		key = strconv.AppendUint(append(key, ':'), n, 10)
	}
	return string(key)
}

// numbers returns how many numbers a counter's key has.
func numbers(c wire.LimitCounter) int {
	if c.Precision == 0 {
		return 3
	}
	return 4
}

// sender returns the key of a sender's record in a partition. If a shared take asks a partition
// several times for a push, each time has its own record, with another round.
func (k keys) sender(namespace string, partition uint32, sender uint64, round string) string {
	return k.prefix(namespace, partition) + "sender:" + hexOf(sender) + round
}

func hexOf(id uint64) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, id))
}

// lock is the key of a lock of a partition.
func (k keys) lock(namespace string, partition uint32) string {
	return k.prefix(namespace, partition) + "lock"
}

// Places of a fleet's keys.
const (
	nearIndex   = 1
	heardIndex  = 2
	silentIndex = 5
)

// list is the first key of a namespace's fleet, which is there if any is.
func (k keys) list(namespace string) string { return k.prefix(namespace, 0) + "fleet" }

// fleet are the keys of a namespace's fleet.
func (k keys) fleet(namespace string) []string {
	prefix := k.list(namespace)
	return []string{prefix, prefix + ":near", prefix + ":heard", prefix + ":divisors", prefix + ":answered", prefix + ":silent"}
}

func (k keys) overrides(namespace string) string { return "weir:{" + namespace + "}:overrides" }

// notes returns the key of the notes on a topic.
func (k keys) notes(topic store.Topic, namespace string) string {
	return "weir:{" + namespace + "}:" + [...]string{store.Nodes: "nodes", store.AppliedLists: "told", store.Reports: "reports", store.Changes: "changes", store.Rules: "rules", store.Namespaces: "namespaces", store.Tellers: "tellers"}[topic]
}

// accountant returns the key of the last sequence of a sender's messages on usage.
func (k keys) accountant(namespace string, sender uint64) string {
	return fmt.Sprintf("weir:{%s}:used:sender:%016x", namespace, sender)
}

// used returns the key of the usage of a day.
func (k keys) used(namespace string, day uint32) string {
	return "weir:{" + namespace + "}:used:" + strconv.FormatUint(uint64(day), 10)
}

// usedRanks is the key of the ranks of a day's labels.
func (k keys) usedRanks(namespace string, day uint32) string {
	return k.used(namespace, day) + ":ranks"
}

// parse is the inverse of counter. ok is false for keys that counter does not return.
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
