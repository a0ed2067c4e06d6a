package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/fstest"

	"weir/playground"
)

const manyRules, manyNodes = 256, 50

// many is a server like weir run's with many rules and nodes. It tells a moment and the state each time
// that next is sent to.
type many struct {
	next chan struct{}
}

func (m many) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/live.json":
		http.ServeFileFS(w, r, fstest.MapFS{"live.json": {Data: []byte(`{"live": "run", "traffic": true}`)}}, "live.json")
	case "/live/events":
		m.tell(w, r)
	default:
		http.FileServerFS(playground.Files()).ServeHTTP(w, r)
	}
}

// tell tells of rules, each nearer to its limit than the rule before.
func (m many) tell(w http.ResponseWriter, r *http.Request) {
	type object = map[string]any
	send := func(name string, event object) {
		data, err := json.Marshal(event)
		if err == nil {
			_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
		}
		if err != nil {
			return // the page has gone
		}
	}
	rules, nodes := make([]object, manyRules), make([]string, manyNodes)
	for i := range rules {
		rules[i] = object{"name": fmt.Sprintf("rule-%03d", i), "shared": true, "limits": []object{{"limit": 1000, "window_ms": 60000, "algorithm": "sliding_window"}}}
	}
	for i := range nodes {
		nodes[i] = fmt.Sprint("127.0.0.1:", 10000+i)
	}
	send("setup", object{"namespace": "shop", "nodes": nodes, "rules": rules, "failure": "local", "timeout_ms": 200})
	for n := 1; ; n++ {
		most, told := make([][]int, manyRules), make([]object, manyNodes)
		for i := range most {
			most[i] = []int{i + n%3}
		}
		for i := range told {
			of := make([]object, manyRules)
			for j := range of {
				of[j] = object{"namespace": "shop", "name": fmt.Sprintf("rule-%03d", j), "allowed": n * (i + j), "refused": n * (j % 2)}
			}
			told[i] = object{"rules": of, "callouts": n}
		}
		send("moment", object{"n": n, "at": 1_767_225_600_000 + 500*n, "nodes": told, "most": most})
		send("state", object{
			"backend": true, "faults": object{"away": n%7 == 0, "delay_ms": 0, "cut": []int{}}, "load": object{"rate": 0, "users": 1, "node": -1}, "sent": object{},
			"watched": object{"rule": "rule-000", "limit": 1000, "window_ms": 60000, "algorithm": "sliding_window", "changeable": true},
			"looked":  object{"top": object{"rules": []object{}}},
		})
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-m.next:
		case <-r.Context().Done():
			return
		}
	}
}

// crowd is a page with many rules, opened by the traffic that there is.
func crowd(t testing.TB) (*page, many) {
	m := many{make(chan struct{})}
	p := open(t, m, desktop)
	p.until(fmt.Sprintf(`document.querySelectorAll("#rules tbody tr").length === %d`, manyRules))
	return p, m
}

// The table of rules begins with the nearest to its limit, sorts by what is clicked, and filters. A rule
// that is opened has its curve.
func TestManyRules(t *testing.T) {
	t.Parallel()
	p, m := crowd(t)
	if !value[bool](p, `location.hash === "#live"`) {
		t.Error("there is traffic, and the page opens elsewhere")
	}
	first := func(want string) {
		t.Helper()
		p.until(fmt.Sprintf(`document.querySelector("#rules tbody button").textContent === %q`, want))
	}
	first("rule-255")
	p.click("#rules thead th:nth-child(1) button")
	first("rule-000")
	p.click("#rules thead th:nth-child(1) button")
	first("rule-255")
	m.next <- struct{}{}
	p.click("#rules thead th:nth-child(4) button")
	p.until(`document.querySelector("#rules tbody td:nth-child(4)").textContent === "100 a second"`)
	p.run(`{ const f = document.querySelector("#rules input"); f.value = "E-04"; f.dispatchEvent(new Event("input")) }`)
	p.until(`document.querySelectorAll("#rules tbody tr").length === 10`)
	if n := value[int](p, `[...document.querySelectorAll("#curves .curve")].filter((e) => e.checkVisibility()).length`); n != 0 {
		t.Errorf("%d curves are drawn", n)
	}
	p.click("#rules tbody tr button")
	p.until(`[...document.querySelectorAll("#curves .curve")].filter((e) => e.checkVisibility()).length === 1`)
	for range 8 { // an outage among them
		m.next <- struct{}{}
	}
	p.until(`document.querySelectorAll("#curves .curve .outage").length === 1`)
	p.until(`document.querySelector("#curves .curve:not([hidden]) .mean").textContent.startsWith("top ")`)
	if hidden := value[bool](p, `document.getElementById("nodes").hidden`); !hidden {
		t.Error("50 nodes are drawn")
	}
	p.click("#more-nodes button")
	m.next <- struct{}{}
	p.until(fmt.Sprintf(`document.querySelectorAll("#nodes .node .rule").length === %d`, manyNodes)) // of the rule that is open
	p.click("#more-nodes button")
	// Few rows, as axe-core is not sure of those at the edge of what scrolls.
	p.run(`{ const f = document.querySelector("#rules input"); f.value = "E-041"; f.dispatchEvent(new Event("input")) }`)
	for _, l := range []look{{width: 360, height: 900, theme: "light"}, {width: 1440, height: 900, theme: "dark"}} {
		p.wear(l)
		p.until("document.getAnimations().length === 0")
		fits(p)
		accessible(p, axe(t))
	}
}

// TestManyRulesWork counts what a moment of many rules has the page do: what is out of sight costs
// nothing to draw.
func TestManyRulesWork(t *testing.T) {
	t.Parallel()
	p, m := crowd(t)
	p.run(`document.getElementById("rules").scrollIntoView()`) // what stands above has grown
	p.run(`{
		globalThis.did = {drawn: 0, mutations: 0, states: 0};
		const clear = CanvasRenderingContext2D.prototype.clearRect;
		CanvasRenderingContext2D.prototype.clearRect = function (...box) { if (this.canvas.closest("#live")) did.drawn++; clear.apply(this, box) };
		new MutationObserver((all) => { did.mutations += all.length }).observe(document.getElementById("live"), {subtree: true, childList: true, attributes: true, characterData: true});
	}`)
	const moments = 5
	for range moments {
		m.next <- struct{}{}
	}
	p.until(fmt.Sprintf(`did.drawn >= %d`, moments))
	m.next <- struct{}{} // the moments before it have been drawn by now
	got := value[map[string]int](p, "did")
	seen := value[int](p, `[...document.querySelectorAll("#rules tbody tr")].filter((row) => { const r = row.getBoundingClientRect(); return r.top < innerHeight && r.bottom > 0 }).length`)
	if most := (moments + 1) * 40; got["drawn"] > most {
		t.Errorf("%d curves were drawn for %d moments with %d rows in sight, want at most %d", got["drawn"], moments, seen, most)
	}
	if most := (moments + 1) * 400; got["mutations"] > most {
		t.Errorf("%d changes of the page for %d moments, want at most %d", got["mutations"], moments, most)
	}
}

// BenchmarkManyRules tells how long a moment of many rules and nodes keeps the page, and the frames that
// there are meanwhile. At 30 frames a second a frame has 33 ms.
func BenchmarkManyRules(b *testing.B) {
	p, m := crowd(b)
	p.run(`{
		globalThis.gaps = [];
		let last;
		requestAnimationFrame(function frame(now) {
			if (last !== undefined) gaps.push(now - last);
			last = now;
			requestAnimationFrame(frame);
		});
	}`)
	for range max(b.N, 40) {
		from := value[int](p, "gaps.length")
		m.next <- struct{}{}
		p.until("gaps.length > " + strconv.Itoa(from+12)) // a fifth of a second, and so more moments than there are
	}
	got := value[[]float64](p, `{ const all = gaps.sort((a, b) => a - b); [all.length * 1000 / all.reduce((a, b) => a + b), all[Math.floor(all.length * 0.99)]] }`)
	b.ReportMetric(got[0], "frames/s")
	b.ReportMetric(got[1], "ms/frame-p99")
}
