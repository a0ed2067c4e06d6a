package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func examplePush() *Push {
	return &Push{
		Namespace: "shop.v1", Sender: 0xfedcba9876543210, Sequence: 7, Floor: 5,
		Items: []Item{
			{Counter: Counter{ID: ID{1, 2, 3}, Kind: 3, WidthMillis: 60_000}, Newest: 29_000_000, Hits: []int64{4, -1}},
			{Counter: Counter{ID: ID{1}, Kind: 4, WidthMillis: 60_000, Precision: 1}, Limit: 700, Newest: 1 << 60, Hits: []int64{1, 300}, Ages: []uint64{0, 59e9}},
			{Counter: Counter{ID: ID{1}, Kind: 4, WidthMillis: 60_000, Precision: 15e9}, Limit: 7, Newest: 1 << 40, Hits: nil, Ages: nil},
			{Counter: Counter{ID: ID{1}, Kind: 5, WidthMillis: 60_000}, Limit: 10, Newest: 1 << 60, Hits: []int64{25}},
			{Counter: Counter{ID: ID{0xff, 15: 0xff}, Kind: 2, Ordinal: 1, WidthMillis: MaxWidthMillis}, Newest: 1 << 62, Hits: []int64{MaxHits}},
		},
	}
}

func exampleAnswer() *Answer {
	return &Answer{NowNanos: 1_767_225_600_000_000_000, Totals: []Total{
		{Newest: 29_000_000, Hits: []uint64{10, 3}},
		{Newest: 1 << 60, Hits: []uint64{1, 1}, Ages: []uint64{3, 1 << 50}},
		{Newest: 1 << 62, Hits: []uint64{MaxHits}},
	}}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	push, err := DecodePush(AppendPush(nil, examplePush()))
	if err != nil || !reflect.DeepEqual(push, examplePush()) {
		t.Errorf("push: got %+v, %v", push, err)
	}
	answer, err := DecodeAnswer(AppendAnswer(nil, exampleAnswer()))
	if err != nil || !reflect.DeepEqual(answer, exampleAnswer()) {
		t.Errorf("answer: got %+v, %v", answer, err)
	}
}

// Buckets have ages, and nothing else does.
func TestAgesOfTheWrongKind(t *testing.T) {
	t.Parallel()
	head := AppendPushHeader(nil, "n", 1, 1, 1, 1, 1)
	for _, item := range [][]byte{
		{3, 0, 60, 5, 1<<1 | 1, 0, 2},
		{4, 0, 60, 1, 9, 5, 1 << 1, 2},
	} {
		message := append(append(head[:len(head):len(head)], make([]byte, 17)...), item...)
		if _, err := DecodePush(message); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "ages for kind 4") {
			t.Errorf("%v: got %v", item, err)
		}
	}
}

// Every prefix of a message, and a message with something behind it, is malformed: nothing of it may be applied.
func TestTruncatedAndExtended(t *testing.T) {
	t.Parallel()
	push, answer := AppendPush(nil, examplePush()), AppendAnswer(nil, exampleAnswer())
	for n := range push {
		if _, err := DecodePush(push[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("push cut to %d bytes: got %v", n, err)
		}
	}
	for n := range answer {
		if _, err := DecodeAnswer(answer[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("answer cut to %d bytes: got %v", n, err)
		}
	}
	if _, err := DecodePush(append(push, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("push with a byte more: got %v", err)
	}
	if _, err := DecodeAnswer(append(answer, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("answer with a byte more: got %v", err)
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
		{"too many items", func(p *Push) { p.Items = make([]Item, MaxItems+1) }, "at most 1024 items"},
		{"no width", func(p *Push) { p.Items[0].WidthMillis = 0 }, "1 ms to 366 days"},
		{"wide", func(p *Push) { p.Items[0].WidthMillis = MaxWidthMillis + 1 }, "1 ms to 366 days"},
		{"no windows", func(p *Push) { p.Items[0].Hits = nil }, "at least one window"},
		{"many windows", func(p *Push) { p.Items[0].Hits = make([]int64, MaxWindows+1) }, "at most 64 windows"},
		{"descending ages", func(p *Push) { p.Items[1].Ages = []uint64{5, 5} }, "ascending ages"},
		{"many buckets", func(p *Push) {
			p.Items[1].Hits, p.Items[1].Ages = make([]int64, MaxBuckets+1), make([]uint64, MaxBuckets+1)
		}, "at most 4096 windows"},
		{"odd precision", func(p *Push) { p.Items[1].Precision = 7 }, "divides the window"},
		{"no precision", func(p *Push) { p.Items[1].Precision = 0 }, "divides the window"},
		{"huge limit", func(p *Push) { p.Items[3].Limit = MaxHits + 1 }, "limit of at most"},
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

func FuzzDecodePush(f *testing.F) {
	f.Add(AppendPush(nil, examplePush()))
	f.Add([]byte{pushVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePush(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("got %v", err)
			}
			return
		}
		// Varints have several spellings, so compare what is meant rather than the bytes.
		again, err := DecodePush(AppendPush(nil, p))
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add(AppendAnswer(nil, exampleAnswer()))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAnswer(b)
		if err != nil {
			return
		}
		if again, err := DecodeAnswer(AppendAnswer(nil, a)); err != nil || !bytes.Equal(AppendAnswer(nil, a), AppendAnswer(nil, again)) {
			t.Fatalf("%+v became %+v, %v", a, again, err)
		}
	})
}
