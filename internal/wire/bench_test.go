package wire

import (
	"encoding/binary"
	"testing"

	"weir/internal/must"
)

// BenchmarkMessages does what the plugin does with a push of 100 counters, and with the answer, and
// what the backend does to read the push; ns/op is for all of them. The floors copy the same number of bytes, counter by counter.
func BenchmarkMessages(b *testing.B) {
	const items = 100
	item := Item{LimitCounter: LimitCounter{Kind: 3, WidthMillis: 60_000}, Newest: 29_000_000, Hits: []int64{4, 1}}
	var push []byte
	write := func() {
		push = AppendPushHeader(push[:0], &Push{Namespace: "bench", Node: 1, Sender: 2, Sequence: 3, Floor: 3}, items)
		for i := range uint64(items) {
			binary.LittleEndian.PutUint64(item.ID[:], i)
			push = AppendItem(push, &item)
		}
	}
	answer := Answer{NowNanos: 1_767_225_600_000_000_000, Nodes: 3}
	for i := range uint64(items) {
		answer.Totals = append(answer.Totals, Total{Newest: 29_000_000, Hits: []uint64{3 * i, 1000}})
	}
	answered := AppendAnswer(nil, &answer)
	write()

	b.Run("push", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			write()
		}
	})
	b.Run("decoded push", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must.Get(DecodePush(push))(b)
		}
	})
	b.Run("floor of push", func(b *testing.B) { copying(b, push, items) })
	b.Run("answer", func(b *testing.B) {
		b.ReportAllocs()
		var total Total
		var grant Grant
		for b.Loop() {
			a, err := NewAnswerReader(answered)
			read := 0
			for a.Next(&total) {
				read++
			}
			if _, more := a.NextGrant(&grant); more || err != nil || a.Err() != nil || read != items {
				b.Fatalf("read %d totals of %d: %v, %v", read, items, err, a.Err())
			}
		}
	})
	b.Run("floor of answer", func(b *testing.B) { copying(b, answered, items) })
}

func copying(b *testing.B, message []byte, parts int) {
	var written []byte
	size := len(message) / parts
	for b.Loop() {
		written = written[:0]
		for i := range parts {
			written = append(written, message[i*size:][:size]...)
		}
	}
}
