package proxywasm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/must"
)

type fakeStream struct {
	types.DefaultHttpContext
	id uint32
}

// The table does what a map does, for ids as a host gives them: upwards, with some that stay for
// long.
func TestContextsAreAMap(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	var table contexts
	model := map[uint32]bool{}
	next := uint32(1<<32 - 40_000) // ids wrap on the way
	for range 100_000 {
		if next++; next == 0 {
			next++
		}
		table.put(next, &fakeStream{id: next})
		model[next] = true
		for id := range model {
			if len(model) < 300 && random.IntN(3) > 0 {
				break
			}
			table.remove(id)
			delete(model, id)
			if table.get(id) != nil {
				t.Fatalf("%d is still there", id)
			}
			if len(model) < 300 {
				break
			}
		}
		table.remove(next + 1000)
		got := table.used
		if table.newestID != 0 {
			got++
		}
		must.EqualOrEnd(t, got, len(model), "contexts")
	}
	for id := range model {
		if s, ok := table.get(id).(*fakeStream); !ok || s.id != id {
			t.Fatalf("%d: got %v", id, s)
		}
	}
	must.AtMost(t, len(table.ids), 2048, "places that the table has grown to for %d contexts", table.used)
}

func TestContextsOfNothing(t *testing.T) {
	t.Parallel()
	var table contexts
	must.Equal(t, table.get(1) == nil, true, "an empty table has no context")
	table.remove(1)
}

func TestPairs(t *testing.T) {
	t.Parallel()
	var p Pairs
	for range 2 { // the second time in the same memory
		p.Reset()
		p.Add(":method", "GET")
		p.AddBytes("x", nil)
		want := "\x02\x00\x00\x00" + "\x07\x00\x00\x00\x03\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + ":method\x00GET\x00" + "x\x00\x00"
		must.Same(t, p.encode(), []byte(want), "pairs")
	}
	var visited []string
	p.Visit(func(name, value string) { visited = append(visited, name+"="+value) })
	must.Equal(t, fmt.Sprint(visited), "[:method=GET x=]", "visited")
	must.Equal(t, p.Len(), 2, "pairs")
	p.Reset()
	must.Same(t, p.encode(), make([]byte, 4), "an empty list")
}

func TestLinesOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		headers []string
		want    string
		lines   int
	}{
		{nil, "", 0},
		{[]string{":path", "/", "xy", "1"}, "1", 1},
		{[]string{"xy", "", ":path", "/"}, "", 1},
		{[]string{"xy", "1", "xyz", "no", "xy", "2,3", "y", "no", "xy", ""}, "1; 2,3; ", 3},
		{[]string{"xy", "", "xy", "", "xy", "long"}, "; ; long", 3},
		{[]string{"x", "1", "Xy", "2"}, "", 0},
	} {
		var pairs Pairs
		for i := 0; i < len(test.headers); i += 2 {
			pairs.Add(test.headers[i], test.headers[i+1])
		}
		if got, lines := linesOf(pairs.encode(), "xy", "; "); string(got) != test.want || lines != test.lines {
			t.Errorf("%q: got %q of %d lines, want %q of %d", test.headers, got, lines, test.want, test.lines)
		}
	}
}

// FuzzLinesOf reads lists that no proxy sends, and such as it sends as Visit does.
func FuzzLinesOf(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00xy\x001\x00"), "xy", "1", "xy")
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), "", "", "x")
	f.Fuzz(func(t *testing.T, hostile []byte, name, value, other string) {
		linesOf(bytes.Clone(hostile), "xy", "; ")
		var pairs Pairs
		pairs.Add(name, value)
		pairs.Add(other, name)
		pairs.Add("xy", value)
		pairs.Add("xy", other)
		var want []string
		pairs.Visit(func(name, value string) {
			if name == "xy" {
				want = append(want, value)
			}
		})
		if got, lines := linesOf(pairs.encode(), "xy", "; "); string(got) != strings.Join(want, "; ") || lines != len(want) {
			t.Errorf("got %q of %d lines, want %q", got, lines, want)
		}
	})
}
