package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/window"
)

func exampleList() []Override {
	return []Override{
		{Rule: "all", Limits: []OverrideLimit{{Max: 0, WidthMillis: 1}}},
		{Rule: "per-user", Values: []string{"ann"}, Limits: []OverrideLimit{{Max: 1000, WidthMillis: 60_000}}, Until: 1_796_083_200_000},
		{Rule: "per-user", Values: []string{"ann"}, Notice: Notice{Reset: 1_796_083_100_000, Granted: 5}, Until: 1_796_083_200_000},
		{Rule: "per-user", Values: []string{"", strings.Repeat("x", MaxOverrideValue)}, Limits: slices.Repeat([]OverrideLimit{
			{Max: MaxHits, Burst: MaxHits, WidthMillis: MaxWidthMillis},
		}, MaxLimits), Until: MaxHits},
	}
}

func examplePrices() []Price {
	return []Price{
		{List: "models", Model: "gpt-5", Kinds: []PriceOfKind{{Kind: 1, Millionths: 1_250_000}, {Kind: 7}}},
		{List: strings.Repeat("l", MaxName), Model: strings.Repeat("m", MaxUsedModel), Kinds: slices.Repeat([]PriceOfKind{{Kind: 4, Millionths: MaxHits}}, maxPrices)},
	}
}

func exampleOverrides() Overrides {
	list := List(exampleList())
	return Overrides{Known: true, Version: 7, Size: uint64(len(list)), From: 9, Part: list[9:]}
}

func TestListRoundTrip(t *testing.T) {
	t.Parallel()
	got, prices, err := DecodeList(List(exampleList(), examplePrices()...))
	if err != nil || !reflect.DeepEqual(got, exampleList()) || !reflect.DeepEqual(prices, examplePrices()) {
		t.Errorf("got %+v, %+v, %v", got, prices, err)
	}
}

// A list of whole rules arrives as it was, in order, and a reader without modes finds a limit above all
// limits in each of them, which fits no rule.
func TestWholeRules(t *testing.T) {
	t.Parallel()
	list := []Override{
		{Rule: AllRules, Mode: Off, Until: 1_796_083_200_000},
		{Rule: "all", Mode: Configured, Limits: []OverrideLimit{{Max: window.MaxLimit, WidthMillis: 1}}},
		{Rule: "all", Limits: []OverrideLimit{{Max: window.MaxLimit, WidthMillis: 1}}},
		{Rule: "all", Notice: Notice{Reset: 1}},
		{Rule: "per-user", Mode: Shadow, Limits: slices.Repeat([]OverrideLimit{{Burst: 7, WidthMillis: 60_000}}, MaxLimits)},
		{Rule: "per-user", Mode: OfKeys, Values: []string{"^a", "=b"}, Limits: []OverrideLimit{{Max: window.MaxLimit, Burst: 3, WidthMillis: 1}}},
		{Rule: "per-user", Values: []string{"ann"}, Limits: []OverrideLimit{{Max: 1, WidthMillis: 1}}},
		{Rule: "trial", Mode: Enforce},
	}
	must.Equal(t, slices.IsSortedFunc(list, func(a, b Override) int { return a.Compare(&b) }), true, "the list is sorted")
	if got, _, err := DecodeList(List(list)); err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, o := range list {
		r := reader{data: AppendOverride(nil, &o)}
		r.counted(MaxName)
		for range r.uvarint() {
			r.counted(MaxOverrideValue)
		}
		if n := r.most(r.uvarint(), MaxLimits); o.Mode == OfKey || n == 0 {
			continue
		}
		l := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: window.MaxWidth}, Max: r.amount(), Burst: max(1, r.amount())}
		if l.Width = int64(r.width()) * window.MinWidth; r.err != nil || l.Fault() != window.WrongMax {
			t.Errorf("%+v: error %v, the limit's fault is %v", o, r.err, l.Fault())
		}
	}
}

// An answer's word on overrides arrives, whether or not it has a part of the list.
func TestAnsweredOverrides(t *testing.T) {
	t.Parallel()
	change := Overrides{Known: true, Version: 7, Size: 9, From: 2, Part: []byte("new"), Of: 3, Keep: 4}
	for _, want := range []Overrides{{}, {Known: true}, {Known: true, Version: 1 << 60}, exampleOverrides(), change} {
		must.Same(t, must.Get(DecodeAnswer(AppendAnswer(nil, &Answer{Overrides: want})))(t).Overrides, want, "")
	}
}

func TestOverridesBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		change func(o *Override)
		want   string
	}{
		{func(o *Override) { o.Rule = strings.Repeat("r", 65) }, "at most 64"},
		{func(o *Override) { o.Values = make([]string, 17) }, "at most 16"},
		{func(o *Override) { o.Values = []string{strings.Repeat("v", 1025)} }, "at most 1024"},
		{func(o *Override) { o.Limits = nil }, "at least one limit"},
		{func(o *Override) { o.Limits, o.Notice.Reset = nil, MaxHits+1 }, "at most 2^53-1"},
		{func(o *Override) { o.Limits = make([]OverrideLimit, 9) }, "at most 8"},
		{func(o *Override) { o.Limits[0].WidthMillis = 0 }, "1 ms to 366 days"},
		{func(o *Override) { o.Limits[0].Max = MaxHits + 1 }, "at most 2^53-1"},
		{func(o *Override) { o.Limits[0].Burst = MaxHits + 1 }, "at most 2^53-1"},
		{func(o *Override) { o.Until = MaxHits + 1 }, "at most 2^53-1"},
	} {
		o := exampleList()[1]
		test.change(&o)
		if _, _, err := DecodeList(AppendOverride(nil, &o)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want an error with %q", err, test.want)
		}
	}
	for _, p := range []Price{
		{List: strings.Repeat("l", MaxName+1)}, {Model: strings.Repeat("m", MaxUsedModel+1)}, {Kinds: make([]PriceOfKind, maxPrices+1)},
		{Kinds: []PriceOfKind{{Millionths: MaxHits + 1}}},
	} {
		_, _, err := DecodeList(List(nil, p))
		must.Is(t, err, ErrMalformed, "%+v", p)
	}
	for _, o := range []Overrides{
		{Known: true, Size: MaxOverridesSize + 1},
		{Known: true, Size: 5, From: 6},
		{Known: true, Size: 5, From: 1, Of: 3, Keep: 3, Part: make([]byte, 2)},
		{Known: true, Size: 5, From: 1, Part: make([]byte, 5)},
		{Known: true, Size: MaxOverridesSize, Part: make([]byte, MaxPart+1)},
	} {
		_, err := DecodeAnswer(AppendAnswer(nil, &Answer{Overrides: o}))
		must.Is(t, err, ErrMalformed, "%d bytes from %d of %d", len(o.Part), o.From, o.Size)
	}
}

// A list is changed by what differs from an earlier one of up to 64, as often as it changes. Who has no such list,
// or does not read changes, gets parts; one of v0.1 none of a list that is too long for it.
func TestChangesOfLists(t *testing.T) {
	t.Parallel()
	list := func(values ...int) (list []byte) {
		for _, v := range values {
			list = AppendOverride(list, &Override{Rule: "r", Values: []string{strings.Repeat("x", 900)}, Limits: []OverrideLimit{{Max: uint64(v), WidthMillis: 1}}})
		}
		return list
	}
	random := rand.New(rand.NewPCG(1, 2))
	values := make([]int, 1200)
	for i := range values {
		values[i] = i
	}
	lists, pasts := [][]byte{nil, list(values...)}, []Past(nil)
	for version := uint64(2); version < 100; version++ {
		at := random.IntN(40)
		switch random.IntN(3) {
		case 0:
			values[at] += 2000
		case 1:
			values = slices.Delete(values, at, at+1)
		default:
			values = slices.Insert(values, at, 10_000+int(version))
		}
		before := lists[version-1]
		lists = append(lists, list(values...))
		if pasts = NextPasts(pasts, before, version-1, lists[version]); len(pasts) > 64 {
			t.Fatalf("%d earlier lists", len(pasts))
		}
		for of := uint64(1); of < version; of += 1 + random.Uint64N(9) {
			o := OverridesFor(&Push{Known: Known{Version: of, Asks: true, Of: of, From: HasAll}}, lists[version], version, pasts...)
			o, err := answered(o)
			if known := of+64 >= version; err != nil || o.Of != 0 != known {
				t.Fatalf("version %d for %d: %+v, %v", version, of, o.Of, err)
			} else if !known {
				continue
			}
			had := lists[of]
			if got := slices.Concat(had[:o.From], o.Part, had[uint64(len(had))-o.Keep:]); !bytes.Equal(got, lists[version]) {
				t.Fatalf("version %d of %d is another list", version, of)
			}
		}
	}
	one, two := list(1), list(1, 2)
	for _, lists := range [][2][]byte{{one, two}, {two, one}} {
		must.Same(t, NextPasts(nil, lists[0], 7, lists[1]), []Past{{7, uint64(len(one)), 0}}, "a change at the end of %d bytes", len(lists[0]))
	}
	now := lists[len(lists)-1]
	for name, test := range map[string]struct {
		known Known
		part  int
	}{
		"of v0.1": {Known{Asks: true, Of: 100}, 0}, "of v0.1 that has one": {Known{Version: 98, Asks: true, Of: 98, From: maxPlain}, 0}, "by a poll": {Known{Asks: true, Within: 5}, 0},
		"none": {Known{Asks: true, From: HasAll}, MaxPart}, "an unknown one": {Known{Asks: true, Of: 7, From: HasAll}, MaxPart}, "the next part": {Known{Asks: true, Of: 100, From: MaxPart}, MaxPart},
		"the middle of another": {Known{Asks: true, Of: 98, From: MaxPart}, 0},
	} {
		o, err := answered(OverridesFor(&Push{Known: test.known}, now, 100, pasts...))
		if err != nil || o.Version != 100 || o.Of != 0 || len(o.Part) != test.part || test.part == 0 && (o.From != maxPlain || o.Size > maxPlain) {
			t.Errorf("%s: %d bytes from %d of %d, %v", name, len(o.Part), o.From, o.Size, err)
		}
	}
}

func answered(o Overrides) (Overrides, error) {
	answer, err := DecodeAnswer(AppendAnswer(nil, &Answer{Overrides: o}))
	if err != nil {
		return o, err
	}
	return answer.Overrides, nil
}

func FuzzDecodeList(f *testing.F) {
	f.Add(List(exampleList(), examplePrices()...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		list, prices, err := DecodeList(b)
		if err != nil {
			must.Is(t, err, ErrMalformed, "read")
			return
		}
		again, priced, err := DecodeList(List(list, prices...))
		if err != nil || !reflect.DeepEqual(list, again) || !reflect.DeepEqual(prices, priced) {
			t.Fatalf("%+v and %+v became %+v and %+v, %v", list, prices, again, priced, err)
		}
	})
}
