package proxywasm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
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
		if len(model) != got {
			t.Fatalf("got %d contexts, want %d", got, len(model))
		}
	}
	for id := range model {
		if s, ok := table.get(id).(*fakeStream); !ok || s.id != id {
			t.Fatalf("%d: got %v", id, s)
		}
	}
	if len(table.ids) > 2048 {
		t.Errorf("the table has grown to %d places for %d contexts", len(table.ids), table.used)
	}
}

func TestContextsOfNothing(t *testing.T) {
	t.Parallel()
	var table contexts
	if table.get(1) != nil {
		t.Error("an empty table has a context")
	}
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
		if got := p.encode(); !bytes.Equal(got, []byte(want)) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	var visited []string
	p.Visit(func(name, value string) { visited = append(visited, name+"="+value) })
	if fmt.Sprint(visited) != "[:method=GET x=]" || p.Len() != 2 {
		t.Errorf("got %v", visited)
	}
	p.Reset()
	if got := p.encode(); !bytes.Equal(got, make([]byte, 4)) {
		t.Errorf("an empty list: got %q", got)
	}
}
