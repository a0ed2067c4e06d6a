package filter

import (
	"strconv"
	"testing"
)

// What streams that have gone asked for is not asked for, and not kept without end, though all callouts that may be out are.
func TestWishesOfStreamsThatHaveGone(t *testing.T) {
	for _, rate := range []string{"0", "1"} {
		v := newProxy(t).start(`{"backend": {"cluster": "weir"}, "sync_rate": ` + rate + `, "rules": [` + scarce + `]}`)
		for i := range maxAsking {
			if v.pause("x-user", "first "+strconv.Itoa(i)) == nil {
				t.Fatal("a request does not wait")
			}
		}
		for i := range 10 * leastWishes {
			user := strconv.Itoa(i)
			if i >= 10*leastWishes-3 {
				user = "ann"
			}
			stream := v.pause("x-user", user)
			if stream == nil {
				t.Fatal("a request does not wait")
			}
			v.reset(stream)
			v.tick()
			if wishes := len(v.plugin.sync.wishes); wishes > leastWishes {
				t.Fatalf("sync_rate %s: %d wishes that nobody waits for", rate, wishes)
			}
		}
		if v.pause("x-user", "ann") == nil {
			t.Fatal("a request does not wait")
		}
		wished := 0
		for _, take := range v.plugin.sync.wishes {
			if take.wanted() {
				wished += int(take.most)
			}
		}
		if wished != 1 {
			t.Errorf("sync_rate %s: one waits for one hit, but %d are wished for", rate, wished)
		}
	}
}
