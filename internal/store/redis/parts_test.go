package redis_test

import (
	"bufio"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

// logItem returns an item of a log of an hour, with a hit in each of a number of nanoseconds before
// now.
func logItem(id byte, limit uint64, hits int) wire.Item {
	it := wire.Item{
		LimitCounter: wire.LimitCounter{ID: wire.ID{id}, Kind: uint8(window.SlidingBuckets), WidthMillis: 3_600_000, Precision: 1},
		Limit:        limit, Newest: uint64(epoch.UnixNano()), Hits: slices.Repeat([]int64{1}, hits),
	}
	for i := range it.Hits {
		it.Ages = append(it.Ages, uint64(i))
	}
	return it
}

// scripts returns how many buckets each script of a call has read.
func scripts(t *testing.T, server *redistest.Server, body func()) (read []int) {
	t.Helper()
	client := raw(t, server)
	conn := must.Get(net.Dial("tcp", server.Addr))(t)
	defer conn.Close()
	lines := bufio.NewReader(conn)
	line := func() string {
		text := must.Get(lines.ReadString('\n'))(t)
		return strings.ToLower(text)
	}
	must.Get(conn.Write([]byte("MONITOR\r\n")))(t)
	line() // +OK
	body()
	must.OK(t, client.Echo(t.Context(), "the end").Err())
	for {
		_, words, _ := strings.Cut(line(), "] ")
		command := strings.Fields(strings.ReplaceAll(words, `"`, ""))
		switch command[0] {
		case "echo":
			return read
		case "evalsha":
			read = append(read, 0)
		case "getrange":
			first, _ := strconv.Atoi(command[2])
			last, _ := strconv.Atoi(command[3])
			read[len(read)-1] += (last + 1 - first + 15) / 16
		case "hgetall":
			fields := must.Get(client.HLen(t.Context(), strings.ReplaceAll(command[1], `"`, "")).Result())(t)
			read[len(read)-1] += int(fields)
		}
	}
}

// With logs of any size, a push reads only what its own limits need, and no script reads so much
// that Redis serves no other client for long.
func TestReadsAreBounded(t *testing.T) {
	server := redistest.Start(t)
	counters := open(t, server.URL(), atEpoch)
	const logs = 100
	sequence := uint64(0)
	push := func(items []wire.Item, takes ...wire.Take) {
		t.Helper()
		sequence++
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Items: items, Takes: takes}
		must.Get(counters.Push(t.Context(), p, 1))(t)
	}
	// Very large limits make logs as large as they can get.
	for id := range byte(logs) {
		push([]wire.Item{logItem(id, wire.MaxHits, wire.MaxBuckets)})
	}
	items := func(limit uint64, logs, hits int) (items []wire.Item) {
		for id := range byte(logs) {
			items = append(items, logItem(id, limit, hits))
		}
		return items
	}
	take := wire.Take{Least: 1, Most: 1}
	for id := range byte(logs) {
		take.Rooms = append(take.Rooms, wire.Room{LimitCounter: logItem(id, 0, 0).LimitCounter, Limit: 0, Cost: 1})
	}
	for _, test := range []struct {
		name        string
		push        func()
		total, most int
	}{
		{"reads for no limit", func() { push(items(0, logs, 0)) }, logs * 260, 2048},
		{"reads for limits of 505", func() { push(items(505, 50, 0)) }, 50 * 2280, 2048},
		// A take is a single step.
		{"a take", func() { push(nil, take) }, logs * 260, logs * 130},
		{"writes for no limit", func() { push(items(0, logs, 1)) }, logs * 260, 2048},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := scripts(t, server, test.push)
			sum := 0
			for _, n := range read {
				sum += n
			}
			must.AtMost(t, sum, test.total, "buckets that %d scripts read", len(read))
			must.AtMost(t, slices.Max(read), test.most, "buckets that one of them reads")
		})
	}
}

// If a push of several scripts is cut short, the next attempt completes it, and nothing is applied
// twice.
func TestPartsBreakOff(t *testing.T) {
	counters, client := begun(t, atEpoch)
	allow := func(keys ...any) {
		t.Helper()
		must.OK(t, client.Do(t.Context(), append([]any{"ACL", "SETUSER", "default", "resetkeys"}, keys...)...).Err())
	}
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1}
	for id := range byte(9) {
		p.Items = append(p.Items, logItem(id, 800, 2))
		p.Takes = append(p.Takes, wire.Take{Least: 1, Most: 5, Rooms: []wire.Room{{LimitCounter: logItem(id, 0, 0).LimitCounter, Limit: 800, Cost: 1}}})
	}
	// The last counters are not accessible.
	allow("~weir:{ns}:sender:*", "~weir:{ns}:counter:00*", "~weir:{ns}:counter:01*", "~weir:{ns}:counter:02*")
	_, err := counters.Push(t.Context(), p, 1)
	must.Fails(t, err, "a push whose last counters are not accessible")
	allow("~*")
	var outs []store.Outcome
	for range 2 {
		out := must.Get(counters.Push(t.Context(), p, 1))(t)
		for i := range p.Items {
			must.Equal(t, out.Answer.Grants[i].Units, 5, "counter %d: units", i)
			must.Same(t, out.Answer.Totals[i].Hits, []uint64{6, 1}, "counter %d: hits now and before", i)
		}
		outs = append(outs, out)
	}
	if outs[0].Duplicate || !outs[1].Duplicate || outs[1].Applied != 0 {
		t.Errorf("outcomes %+v, want the rest to be applied once", outs)
	}
}
