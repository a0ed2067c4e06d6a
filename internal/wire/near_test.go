package wire

import (
	"errors"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/window"
)

func advancingPush() *Push {
	p := examplePush()
	p.Advance = Advance{Present: true, Epoch: 7, Version: 300, Divisor: 20, Wants: true, Settled: true}
	for i := range p.Takes {
		for j := range p.Takes[i].Rooms {
			p.Takes[i].Rooms[j].Tag = uint16(5 + j)
		}
	}
	return p
}

func nearAnswer() *Answer {
	a := exampleAnswer()
	a.Near = Near{Present: true, Epoch: 1 << 63, Version: 301, Divisor: 24}
	a.Near.AddLimit(1 << 40)
	a.Near.AddKey(9)
	a.Near.AddKey(1 << 31)
	return a
}

// A flag that nobody knows is of another version.
func TestUnknownAdvance(t *testing.T) {
	t.Parallel()
	message := AppendPushHeader(nil, advancingPush(), 0)
	message[len(message)-3] |= 4
	if _, err := DecodePush(message); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "known flags") {
		t.Errorf("got %v", err)
	}
}

// The largest lists come back as they were, and none that are larger.
func TestNearOnTheWire(t *testing.T) {
	t.Parallel()
	want := nearAnswer()
	want.Near.Whole, want.Near.Limits, want.Near.Keys = true, make([]byte, 8*MaxNearLimits), make([]byte, 4*MaxNearKeys)
	message := AppendAnswer(nil, want)
	must.Same(t, must.Get(DecodeAnswer(message))(t), want, "decoded")
	must.AtMost(t, len(message)-len(AppendAnswer(nil, exampleAnswer())), MaxNear, "bytes that the list adds")
	for _, longer := range []Near{
		{Present: true, Limits: make([]byte, 8*(MaxNearLimits+1))}, {Present: true, Keys: make([]byte, 4*(MaxNearKeys+1))},
	} {
		_, err := DecodeAnswer(AppendAnswer(nil, &Answer{Near: longer}))
		must.Is(t, err, ErrMalformed, "a list that is too long")
	}
}

// A key has another form in each window, and another if it is full.
func TestNearWindows(t *testing.T) {
	t.Parallel()
	forms := map[uint32]bool{}
	const limits, windows = 10, 100
	for limit := range uint64(limits) {
		for number := range uint64(windows) {
			forms[NearKey(ID{1}, NearWindow(mixed(limit), number))] = true
			forms[NearKey(ID{1}, NearFull(mixed(limit), number))] = true
		}
	}
	must.Equal(t, len(forms), 2*limits*windows, "forms")
}

// The parts of all senders leave room for each other, and for a key that is not near.
func TestMostAdvanced(t *testing.T) {
	t.Parallel()
	for limit := range uint64(5000) {
		for _, divisor := range []uint64{1, 2, 16, 17, 300, 4096} {
			if all := MostAdvanced(limit, divisor) * divisor; NearFrom(limit)+all > max(limit, 1) {
				t.Fatalf("limit %d, divisor %d: near from %d on, and all senders advance %d", limit, divisor, NearFrom(limit), all)
			}
		}
	}
	must.Equal(t, MostAdvanced(MaxHits, 1), MaxAdvance, "a sender advances")
	must.Equal(t, MostAdvanced(1000, 0), 0, "a sender without a part advances")
}

// Limits and keys have names of their own.
func TestNearNames(t *testing.T) {
	t.Parallel()
	seen := map[uint64]bool{}
	for _, c := range []LimitCounter{
		{Kind: uint8(window.FixedWindow), WidthMillis: 1000}, {Kind: uint8(window.SlidingWindow), WidthMillis: 1000},
		{Kind: uint8(window.FixedWindow), WidthMillis: 1001}, {Kind: uint8(window.FixedWindow), WidthMillis: 1000, Ordinal: 1},
	} {
		for limit := range uint64(100) {
			if name := c.NearLimit(limit); seen[name] {
				t.Fatalf("%+v, limit %d: its name is another limit's", c, limit)
			} else {
				seen[name] = true
			}
		}
	}
	a, b := ID{1}, ID{2}
	if NearRule(5, 7) == NearRule(5, 9) || NearRule(5, 7) == NearRule(6, 7) || NearRule(5, 6) != NearRule(5, 7) {
		t.Error("rules are not told apart, or an even tag is another rule's")
	}
	must.Equal(t, NearKey(a, 5) == NearKey(b, 5), false, "keys of two limits are alike")
	must.Equal(t, NearKey(a, 5) == NearKey(a, 6), false, "keys of one limit are alike")
	// Nodes and backends of several versions look for the same forms.
	limit := (&LimitCounter{ID: a, Kind: uint8(window.FixedWindow), WidthMillis: 1000}).NearLimit(5)
	got := []uint64{limit, NearRule(limit, 7), NearWindow(limit, 9), NearFull(limit, 9), uint64(NearKey(a, limit))}
	must.Same(t, got, []uint64{0x4e435de7b1191f28, 0x822d8e7b55518de2, 0xd4047548f96bc7a, 0xf0a3ffa55d44fa63, 0x9b20630a}, "forms")
}
