package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/window"
)

func examplePush() *Push {
	return &Push{
		Namespace: "shop.v1", Sender: 0xfedcba9876543210, Sequence: 7, Floor: 5,
		Items: []Item{
			{LimitCounter: LimitCounter{ID: ID{1, 2, 3}, Kind: 3, WidthMillis: 60_000}, Newest: 29_000_000, Hits: []int64{4, -1}},
			{LimitCounter: LimitCounter{ID: ID{1}, Kind: 4, WidthMillis: 60_000, Precision: 1}, Limit: 700, Newest: 1 << 60, Hits: []int64{1, 300}, Ages: []uint64{0, 59e9}},
			{LimitCounter: LimitCounter{ID: ID{1}, Kind: 4, WidthMillis: 60_000, Precision: 15e9}, Limit: 7, Newest: 1 << 40, Hits: nil, Ages: nil},
			{LimitCounter: LimitCounter{ID: ID{1}, Kind: 5, WidthMillis: 60_000}, Limit: 10, Newest: 1 << 60, Hits: []int64{25}},
			{LimitCounter: LimitCounter{ID: ID{0xff, 15: 0xff}, Kind: 2, Ordinal: 1, WidthMillis: MaxWidthMillis}, Newest: 1 << 62, Hits: []int64{MaxHits}},
		},
		Node:  0x0123456789abcdef,
		Known: Known{Version: 1_767_225_600_000_000, Unfit: 3, Asks: true, Of: 1 << 63, From: 1 << 20},
		Takes: []Take{
			{Least: 1, Most: 1, Rooms: []Room{
				{LimitCounter: LimitCounter{ID: ID{1, 2, 3}, Kind: 3, WidthMillis: 60_000}, Limit: 100, Cost: 0, CountRejected: true},
				{LimitCounter: LimitCounter{ID: ID{1}, Kind: 4, WidthMillis: 60_000, Precision: 15e9}, Limit: MaxHits, Cost: 300},
			}},
			{Least: 7, Most: MaxHits, Lease: true, Rooms: []Room{
				{LimitCounter: LimitCounter{ID: ID{15: 1}, Kind: 5, Ordinal: 2, WidthMillis: 1}, Limit: 10, Burst: 200, Cost: MaxHits},
			}},
		},
	}
}

func exampleAnswer() *Answer {
	return &Answer{NowNanos: 1_767_225_600_000_000_000, Nodes: 300, Overrides: exampleOverrides(), Totals: []Total{
		{Newest: 29_000_000, Hits: []uint64{10, 3}},
		{Newest: 1 << 60, Hits: []uint64{1, 1}, Ages: []uint64{3, 1 << 50}},
		{Newest: 1 << 62, Hits: []uint64{MaxHits}},
	}, Grants: []Grant{
		{Units: 0, AtNanos: 1_767_225_599_999_999_999, Totals: []Total{
			{Newest: 29_000_000, Hits: []uint64{10, 3}},
			{Newest: 1 << 40, Hits: []uint64{1, 1}, Ages: []uint64{0, 3}},
		}},
		{Units: MaxHits, AtNanos: 1_767_225_600_000_000_000, Totals: []Total{{Newest: 1 << 62, Hits: []uint64{MaxHits}}}},
	}}
}

// roundTrip encodes a message. It wants the message back as it was, but not its beginnings, nor the
// message with something behind it: nothing of such may be applied.
func roundTrip[M any](t *testing.T, want M, encode func(dst []byte, m M) []byte, decode func(b []byte) (M, error)) (body []byte) {
	t.Helper()
	body = encode(nil, want)
	must.Same(t, must.Get(decode(body))(t), want, "decoded")
	for n := range body {
		_, err := decode(body[:n])
		must.Is(t, err, ErrMalformed, "cut to %d bytes", n)
	}
	_, err := decode(append(bytes.Clone(body), 0))
	must.Is(t, err, ErrMalformed, "with a byte more")
	return body
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	polls, lacks := examplePush(), exampleAnswer()
	polls.Known.Of, polls.Known.From, polls.Known.Within = 0, 0, 250
	lacks.Missing = []Missing{InDoubt, 4: NotApplied}
	for _, push := range []*Push{examplePush(), polls, advancingPush()} {
		body := roundTrip(t, push, AppendPush, DecodePush)
		if namespace, ok := PushNamespace(body); !ok || namespace != push.Namespace || IsReport(body) || IsUsed(body) {
			t.Errorf("the namespace is %q, %t", namespace, ok)
		}
	}
	for _, answer := range []*Answer{exampleAnswer(), lacks, nearAnswer()} {
		roundTrip(t, answer, AppendAnswer, DecodeAnswer)
	}
}

// ofRelease returns the messages that v0.1.0 made of the examples here, by name.
func ofRelease(t testing.TB) map[string][]byte {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/v0.1.0.txt"))(t)
	messages := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		messages[name] = must.Get(hex.DecodeString(digits))(t)
	}
	return messages
}

// Pushes, answers and lists have the bytes of v0.1.0 if they have nothing that it does not know, and its
// reports are read, which lack some.
func TestMessagesOfRelease(t *testing.T) {
	t.Parallel()
	of := ofRelease(t)
	for name, body := range map[string][]byte{
		"push": AppendPush(nil, examplePush()), "answer": AppendAnswer(nil, exampleAnswer()), "list": List(exampleList()),
	} {
		must.Same(t, body, of[name], "%s", name)
	}
	want := exampleReport()
	want.Rules[0].Used.Keys[0].Leased, want.Rules[0].Used.Keys[0].Pending, want.Rules[0].SyncMillis = 0, 0, 0
	want.Held, want.Digest, want.Told, want.Warnings[0].At = nil, 0, nil, 0
	got, err := DecodeReport(of["report"])
	if err != nil || !reflect.DeepEqual(got, want) || !IsReport(of["report"]) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for n := range of["report"] {
		_, err := DecodeReport(of["report"][:n])
		must.Is(t, err, ErrMalformed, "cut to %d bytes", n)
	}
}

// Buckets have ages, and nothing else does.
func TestAgesOfTheWrongKind(t *testing.T) {
	t.Parallel()
	head := AppendPushHeader(nil, &Push{Namespace: "n", Node: 1, Sender: 1, Sequence: 1, Floor: 1}, 1)
	for _, item := range [][]byte{
		{3, 0, 60, 5, 1<<1 | 1, 0, 2},
		{4, 0, 60, 1, 9, 5, 1 << 1, 2},
	} {
		message := append(append(head[:len(head):len(head)], make([]byte, 17)...), item...)
		if _, err := DecodePush(message); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "want ages if the kind has a precision") {
			t.Errorf("%v: got %v", item, err)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*Push)
		want   string
	}{
		{"no namespace", func(p *Push) { p.Namespace = "" }, "namespace of 1 to 64"},
		{"long namespace", func(p *Push) { p.Namespace = strings.Repeat("n", 65) }, "namespace of 1 to 64"},
		{"odd namespace", func(p *Push) { p.Namespace = "a b" }, "A-Za-z0-9._-"},
		{"sequence 0", func(p *Push) { p.Sequence, p.Floor = 0, 0 }, "sequence from 1"},
		{"floor above sequence", func(p *Push) { p.Floor = 8 }, "floor not above"},
		{"too many items", func(p *Push) { p.Items = make([]Item, MaxItems+1) }, "at most 1024 in this part"},
		{"no width", func(p *Push) { p.Items[0].WidthMillis = 0 }, "1 ms to 366 days"},
		{"wide", func(p *Push) { p.Items[0].WidthMillis = MaxWidthMillis + 1 }, "1 ms to 366 days"},
		{"no windows", func(p *Push) { p.Items[0].Hits = nil }, "at least one window"},
		{"many windows", func(p *Push) { p.Items[0].Hits = make([]int64, MaxWindows+1) }, "at most 64"},
		{"descending ages", func(p *Push) { p.Items[1].Ages = []uint64{5, 5} }, "ascending ages"},
		{"many buckets", func(p *Push) {
			p.Items[1].Hits, p.Items[1].Ages = make([]int64, MaxBuckets+1), make([]uint64, MaxBuckets+1)
		}, "at most 1024"},
		{"odd precision", func(p *Push) { p.Items[1].Precision = 7 }, "divides the window"},
		{"no precision", func(p *Push) { p.Items[1].Precision = 0 }, "divides the window"},
		{"huge limit", func(p *Push) { p.Items[3].Limit = MaxHits + 1 }, "at most 2^53-1"},
		{"items and rooms", func(p *Push) { p.Takes[0].Rooms = slices.Repeat(p.Takes[1].Rooms, MaxItems-5) }, "at most 1024 items and rooms, got 1025"},
		{"too many rooms", func(p *Push) { p.Takes[0].Rooms = slices.Repeat(p.Takes[1].Rooms, MaxItems+1) }, "at most 1024 in this part, got 1025"},
		{"too many takes", func(p *Push) { p.Takes = make([]Take, MaxItems+1) }, "at most 1024 in this part"},
		{"no rooms", func(p *Push) { p.Takes[0].Rooms = nil }, "at least one room"},
		{"least 0", func(p *Push) { p.Takes[0].Least = 0 }, "at least one unit"},
		{"most below least", func(p *Push) { p.Takes[0].Least = 2 }, "a least that is not above most"},
		{"most", func(p *Push) { p.Takes[1].Most = MaxHits + 1 }, "at least one unit"},
		{"room without width", func(p *Push) { p.Takes[1].Rooms[0].WidthMillis = 0 }, "1 ms to 366 days"},
		{"room's precision", func(p *Push) { p.Takes[0].Rooms[1].Precision = 7 }, "divides the window"},
		{"room's limit", func(p *Push) { p.Takes[0].Rooms[0].Limit = MaxHits + 1 }, "at most 2^53-1"},
		{"room's burst", func(p *Push) { p.Takes[1].Rooms[0].Burst = MaxHits + 1 }, "at most 2^53-1"},
		{"room's cost", func(p *Push) { p.Takes[0].Rooms[0].Cost = MaxHits + 1 }, "at most 2^53-1"},
		{"many hits", func(p *Push) { p.Items[0].Hits[0] = MaxHits + 1 }, "2^53-1"},
		{"many hits back", func(p *Push) { p.Items[0].Hits[0] = -MaxHits - 1 }, "2^53-1"},
	} {
		p := examplePush()
		test.change(p)
		if _, err := DecodePush(AppendPush(nil, p)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", test.name, err, test.want)
		}
	}
}

// An item takes memory for its own hits, however many bytes follow.
func TestItemsAreSmall(t *testing.T) {
	t.Parallel()
	p := examplePush()
	p.Items = slices.Repeat(p.Items[:1], 100)
	for i, item := range must.Get(DecodePush(AppendPush(nil, p)))(t).Items {
		must.Equal(t, cap(item.Hits), len(item.Hits), "item %d: hits that have room", i)
	}
}

// A push of takes may be sent again for the longest of twice their windows, and at most for a day.
func TestAgainNanos(t *testing.T) {
	t.Parallel()
	room := func(millis uint64) Room { return Room{LimitCounter: LimitCounter{WidthMillis: millis}} }
	p := &Push{Takes: []Take{{Rooms: []Room{room(1), room(60_000)}}, {Rooms: []Room{room(1000)}}}}
	must.Equal(t, p.AgainNanos(), 120e9, "with a window of a minute: nanoseconds")
	p.Takes[1].Rooms[0] = room(MaxWidthMillis)
	must.Equal(t, p.AgainNanos(), 24*3600e9, "with the widest window: nanoseconds")
}

// A byte that says neither item nor take, and a flag that nobody knows, are of another version.
func TestUnknownPartsAndFlags(t *testing.T) {
	t.Parallel()
	p := &Push{Namespace: "n", Sequence: 1, Takes: examplePush().Takes[:1]}
	message := AppendPush(nil, p)
	head := len(AppendPushHeader(nil, &Push{Namespace: "n", Sequence: 1}, 1))
	for at, want := range map[int]string{head: "want an item or a take", len(message) - 1: "want known flags"} {
		odd := append([]byte(nil), message...)
		odd[at] = 5
		if _, err := DecodePush(odd); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// A push with the most rooms that there may be is not too large to be taken, in one take or in a
// take for each room.
func TestLargestPushOfTakes(t *testing.T) {
	t.Parallel()
	for kind := range byte(5) {
		room := Room{LimitCounter: LimitCounter{Kind: kind + 1, Ordinal: 255, WidthMillis: MaxWidthMillis}, Limit: MaxHits, Cost: MaxHits, CountRejected: true}
		switch room.Kind {
		case uint8(window.SlidingBuckets):
			room.Precision = MaxWidthMillis * 1e6
		case uint8(window.TokenBucket):
			room.Burst = MaxHits
		}
		one := Take{Least: MaxHits, Most: MaxHits, Lease: true}
		var many []Take
		for range MaxItems {
			one.Rooms = append(one.Rooms, room)
			many = append(many, Take{Least: MaxHits, Most: MaxHits, Rooms: []Room{room}})
		}
		for _, takes := range [][]Take{{one}, many} {
			p := &Push{Namespace: strings.Repeat("n", MaxNamespace), Node: 1<<64 - 1, Sender: 1<<64 - 1, Sequence: MaxHits, Floor: MaxHits, Takes: takes}
			message := AppendPush(nil, p)
			must.AtMost(t, len(message), MaxBody, "kind %d: bytes of %d takes", room.Kind, len(takes))
			must.Same(t, must.Get(DecodePush(message))(t).Takes, takes, "kind %d", room.Kind)
		}
	}
}

// Whatever a store can answer a take with fits what the take says that it takes at most.
func TestAnswerSizeOfTakes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	// number is one of any length, up to most.
	number := func(most uint64) uint64 { return min(random.Uint64()>>random.IntN(64), most) }
	empty := len(AppendAnswer(nil, &Answer{}))
	longest := 0.0
	for range 3000 {
		take, grant := Take{}, Grant{Units: number(MaxHits), AtNanos: random.Uint64()}
		for range 1 + random.IntN(5) {
			room := Room{LimitCounter: LimitCounter{Kind: uint8(1 + random.IntN(int(window.LastKind))), WidthMillis: 60_000}, Limit: number(MaxHits)}
			total, windows := Total{Newest: random.Uint64()}, uint64(1)
			switch room.Kind {
			case 3:
				windows = 2
			case uint8(window.SlidingBuckets):
				if windows = number(MaxWindows); random.IntN(2) == 0 {
					room.Precision, windows = 1, number(min(room.Limit+1, MaxBuckets))
				} else {
					room.Precision = 15e9
				}
			}
			for range windows {
				total.Hits = append(total.Hits, number(MaxHits))
				if room.Kind == uint8(window.SlidingBuckets) {
					total.Ages = append(total.Ages, random.Uint64())
				}
			}
			take.Rooms, grant.Totals = append(take.Rooms, room), append(grant.Totals, total)
		}
		size := len(AppendAnswer(nil, &Answer{Grants: []Grant{grant}})) - empty
		if size > take.AnswerSize() {
			t.Fatalf("a grant of %d bytes, want at most %d: %+v of %+v", size, take.AnswerSize(), grant, take)
		}
		longest = max(longest, float64(size)/float64(take.AnswerSize()))
	}
	must.AtLeast(t, longest, 0.8, "of what it may, the longest grant takes")
	// The longest there is, of the kind that leaves the least over.
	take := Take{Rooms: []Room{{LimitCounter: LimitCounter{Kind: 3}}}}
	grant := Grant{Units: MaxHits, AtNanos: 1<<64 - 1, Totals: []Total{{Newest: 1<<64 - 1, Hits: []uint64{1<<64 - 1, 1<<64 - 1}}}}
	must.AtMost(t, len(AppendAnswer(nil, &Answer{Grants: []Grant{grant}}))-empty, take.AnswerSize(), "bytes of a grant")
}

// The size of a limit's room in an answer is known before there is a take.
func TestRoomSize(t *testing.T) {
	t.Parallel()
	take, size := Take{}, GrantSize
	for kind := window.Kind(1); kind <= window.LastKind; kind++ {
		for _, precision := range []int64{0, window.LogPrecision, 15e9} {
			if kind.Bucketed() == (precision == 0) {
				continue
			}
			for _, limit := range []uint64{0, 5, 505, MaxHits} {
				l := window.Limit{Shape: window.Shape{Kind: kind, Width: 60e9, Precision: precision}, Max: limit}
				room := Room{LimitCounter: LimitCounter{Kind: uint8(kind), WidthMillis: 60_000, Precision: uint64(precision)}, Limit: limit}
				take.Rooms = append(take.Rooms, room)
				size += RoomSize(&l)
				must.EqualOrEnd(t, size, take.AnswerSize(), "%+v: bytes", l)
			}
		}
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	message := AppendAnswer(nil, exampleAnswer())
	total, grant := Total{Hits: make([]uint64, 0, 9), Ages: make([]uint64, 0, 9)}, Grant{}
	totals, grants, rooms := 0, 0, 0
	read := func() {
		r, err := NewAnswerReader(message)
		totals, grants, rooms = 0, 0, 0
		for r.Next(&total) {
			totals++
		}
		for n, ok := r.NextGrant(&grant); ok; n, ok = r.NextGrant(&grant) {
			grants++
			for range n {
				if r.NextRoom(&total) {
					rooms++
				}
			}
		}
		if err != nil || r.Err() != nil || totals != r.Count || grants != r.Grants {
			t.Errorf("%d totals of %d, %d grants of %d, error %v", totals, r.Count, grants, r.Grants, r.Err())
		}
	}
	must.Equal(t, testing.AllocsPerRun(100, read), 0, "allocations")
	if totals != 3 || grants != 2 || rooms != 3 || grant.Units != MaxHits || grant.AtNanos != exampleAnswer().Grants[1].AtNanos || total.Newest != 1<<62 {
		t.Errorf("read %d totals, %d grants of %d rooms, the last %+v and %+v", totals, grants, rooms, grant, total)
	}
}

// Parts that are read in another order than they were written in are none of the answer, and no
// mistake goes unnoticed.
func TestReadingInTheWrongOrder(t *testing.T) {
	t.Parallel()
	var total Total
	var grant Grant
	for name, read := range map[string]func(r *AnswerReader) bool{
		"a grant before totals": func(r *AnswerReader) bool {
			_, ok := r.NextGrant(&grant)
			return ok
		},
		"a grant before the last total": func(r *AnswerReader) bool {
			r.Next(&total)
			r.Next(&total)
			_, ok := r.NextGrant(&grant)
			return ok || r.Next(&total)
		},
		"a grant before the rooms of the last": func(r *AnswerReader) bool {
			for r.Next(&total) {
			}
			r.NextGrant(&grant)
			r.NextRoom(&total)
			_, ok := r.NextGrant(&grant)
			return ok || r.NextRoom(&total)
		},
		"a room before its grant": func(r *AnswerReader) bool {
			for r.Next(&total) {
			}
			return r.NextRoom(&total)
		},
		"no grants": func(r *AnswerReader) bool {
			for r.Next(&total) {
			}
			return false
		},
		"no rooms": func(r *AnswerReader) bool {
			for r.Next(&total) {
			}
			r.NextGrant(&grant)
			return r.Next(&total)
		},
	} {
		r := must.Get(NewAnswerReader(AppendAnswer(nil, exampleAnswer())))(t)
		must.Equal(t, read(&r), false, "%s: something was read", name)
		must.Is(t, r.Err(), ErrMalformed, "%s: error, want malformed", name)
	}
	// Nor if all that is read can be read.
	r, err := NewAnswerReader(AppendAnswer(nil, &Answer{Totals: []Total{{}}}))
	if _, ok := r.NextGrant(&grant); err != nil || ok || r.Next(&total) || !errors.Is(r.Err(), ErrMalformed) {
		t.Errorf("a total was read after the grants: %v", r.Err())
	}
	r, err = NewAnswerReader(AppendAnswer(nil, &Answer{Grants: []Grant{{Totals: []Total{{}}}, {AtNanos: 1 << 48}}}))
	if _, ok := r.NextGrant(&grant); err != nil || !ok {
		t.Errorf("no grant: %v", err)
	}
	if _, ok := r.NextGrant(&grant); ok || r.NextRoom(&total) || !errors.Is(r.Err(), ErrMalformed) {
		t.Errorf("a grant was read instead of a room: %v", r.Err())
	}
	// At the end there is nothing more, whoever asks.
	r, err = NewAnswerReader(AppendAnswer(nil, &Answer{NowNanos: 1}))
	if _, ok := r.NextGrant(&grant); err != nil || ok || r.Next(&total) || r.NextRoom(&total) || r.Err() != nil {
		t.Errorf("an empty answer has something, or an error: %v, %v", err, r.Err())
	}
}

func FuzzDecodePush(f *testing.F) {
	f.Add(AppendPush(nil, examplePush()))
	f.Add(AppendPush(nil, &Push{Namespace: "n", Sequence: 1, Takes: examplePush().Takes}))
	f.Add([]byte{pushVersion})
	f.Add(AppendPush(nil, advancingPush()))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePush(b)
		if err != nil {
			must.Is(t, err, ErrMalformed, "read")
			return
		}
		// Varints have several spellings, so compare what is meant rather than the bytes.
		must.Same(t, must.Get(DecodePush(AppendPush(nil, p)))(t), p, "written again")
	})
}

// An answer that lacks some fits no push of another number of parts.
func TestMissing(t *testing.T) {
	want := exampleAnswer()
	want.Missing = []Missing{InDoubt, 4: NotApplied}
	r, err := NewAnswerReader(AppendAnswer(nil, want))
	items, takes := len(want.Totals), len(want.Grants)
	if err != nil || r.Whole() || !r.Fits(items, takes) || r.Fits(items, takes+1) || r.Fits(items+1, takes-1) {
		t.Errorf("error %v, whole %v; want it to fit %d items and %d takes only", err, r.Whole(), items, takes)
	}
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add(AppendAnswer(nil, exampleAnswer()))
	f.Add(AppendAnswer(nil, &Answer{Grants: exampleAnswer().Grants}))
	f.Add(AppendAnswer(nil, &Answer{Grants: []Grant{{Units: 1}}}))
	f.Add(AppendAnswer(nil, nearAnswer()))
	f.Add(AppendAnswer(nil, &Answer{Grants: make([]Grant, 2), Missing: []Missing{NotApplied, InDoubt}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAnswer(b)
		if err != nil {
			return
		}
		again := must.Get(DecodeAnswer(AppendAnswer(nil, a)))(t)
		must.Same(t, AppendAnswer(nil, again), AppendAnswer(nil, a), "%+v, written again", a)
	})
}
