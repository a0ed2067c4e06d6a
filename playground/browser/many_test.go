package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"weir/internal/must"
	"weir/internal/server"
)

const manyRules, manyNodes = 256, 50

// many is a server like weir run's with many rules and nodes. It tells the next moment, and the state, when
// somebody calls step.
type many struct {
	opened chan string // the queries of streams
	keys   int         // how many each list of each rule has

	mu     sync.Mutex
	told   int           // the newest moment's number
	stream chan struct{} // of the newest stream
}

// step has the next moment.
func (m *many) step() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told++
	m.stream <- struct{}{}
}

// listening waits for a stream with a query.
func (m *many) listening(query string) {
	for got := ""; got != query; {
		got = <-m.opened
	}
}

// tell tells of rules, each nearer to its limit than the rule before.
func (m *many) tell(w http.ResponseWriter, r *http.Request) {
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
	send("setup", object{"namespace": "shop", "nodes": nodes, "rules": rules, "each": false, "failure": "local", "timeout_ms": 200})
	steps := make(chan struct{}, 1000)
	m.mu.Lock()
	n := m.told
	m.stream = steps
	m.mu.Unlock()
	m.opened <- r.URL.RawQuery
	looked, last := false, server.LastEvent(r)
	for {
		if int64(n) > last {
			most, sums, told := make([][]int, manyRules), make([]object, manyRules), make([]object, manyNodes)
			for i := range most {
				most[i] = []int{i + n%3}
				sums[i] = object{"allowed": n * manyNodes * (manyNodes/2 + i), "refused": n * manyNodes * (i % 2), "overshoot": 0}
			}
			for i := range told {
				of := []object{}
				for _, name := range r.URL.Query()["rule"] {
					of = append(of, object{"namespace": "shop", "name": name, "allowed": n * i, "refused": n})
				}
				told[i] = object{"rules": of, "callouts": n}
			}
			send("moment", object{"n": n, "at": 1_767_225_600_000 + 500*n, "nodes": told, "rules": sums, "most": most, "all": object{"requests": 100 * n, "answered": n, "waited": n, "waited_ns": 1000 * n}})
		}
		state := object{
			"backend": true, "faults": object{"away": n%7 == 0, "delay_ms": 0, "cut": []int{}}, "load": object{"rate": 0, "users": 1, "node": -1, "rule": "rule-000"}, "sent": object{},
		}
		if !looked || n%2 == 0 { // each second, as weir run
			looked = true
			state["looked"] = object{"top": object{"rules": m.hot(n)}}
		}
		send("state", state)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-steps:
			n++
		case <-r.Context().Done():
			return
		}
	}
}

// hot are the keys of rules as proxies report them, if there are any.
func (m *many) hot(n int) []map[string]any {
	rules := []map[string]any{}
	for i := 0; i < manyRules && m.keys > 0; i++ {
		lists := make([][]map[string]any, 2)
		for j := range 2 * m.keys {
			name := fmt.Sprintf("key-%03d-%02d", i, j)
			lists[j%2] = append(lists[j%2], map[string]any{"hash": name, "values": []map[string]any{{"text": name}}, "hits_per_second": j, "refused_per_second": (j + n) % 7, "use": float64(j) / 50})
		}
		rules = append(rules, map[string]any{"rule": fmt.Sprintf("rule-%03d", i), "nodes": manyNodes, "used": lists[0], "refused": lists[1]})
	}
	return rules
}

// crowd is a page with many rules and keys, opened by the traffic that there is.
func crowd(t testing.TB, keys int) (*page, *many) {
	m := &many{opened: make(chan string, 100), told: 1, keys: keys}
	server := behind(`{"live": "run", "traffic": true}`)
	server.HandleFunc("/live/events", m.tell)
	p := open(t, server, desktop)
	p.until(fmt.Sprintf(`document.querySelectorAll("#rules tbody tr").length === %d`, manyRules))
	return p, m
}

// The table of rules begins with the nearest to its limit, sorts by what is clicked, and filters. A rule
// that is opened has its curve.
func TestManyRules(t *testing.T) {
	t.Parallel()
	p, m := crowd(t, 0)
	must.Equal(t, value[bool](p, `location.hash === "#live"`), true, "there is traffic, and the page opens elsewhere")
	first := func(want string) {
		t.Helper()
		p.until(fmt.Sprintf(`document.querySelector("#rules tbody button").textContent === %q`, want))
	}
	first("rule-255")
	p.click("#rules thead th:nth-child(1) button")
	first("rule-000")
	p.click("#rules thead th:nth-child(1) button")
	first("rule-255")
	m.step()
	p.click("#rules thead th:nth-child(4) button")
	p.until(`document.querySelector("#rules tbody td:nth-child(4)").textContent === "100"`)
	p.types("#rules input", "none such")
	p.until(`document.querySelector("#rules .hint").textContent === "No rule has this name." && !document.querySelector("#rules table").checkVisibility()`)
	p.types("#rules input", "E-04")
	p.until(`document.querySelectorAll("#rules tbody tr").length === 10`)
	must.Equal(t, value[int](p, `[...document.querySelectorAll("#curves .curve")].filter((e) => e.checkVisibility()).length`), 0, "curves are drawn")
	p.click("#rules tbody tr button")
	p.until(`[...document.querySelectorAll("#curves .curve")].filter((e) => e.checkVisibility()).length === 1`)
	for range 8 { // an outage among them
		m.step()
	}
	p.until(`document.querySelectorAll("#curves .curve .outage").length === 1`)
	p.until(`document.querySelector("#curves .curve:not([hidden]) .mean").textContent.startsWith("0 to ")`)
	must.Equal(t, value[bool](p, `document.getElementById("nodes").hidden`), true, "50 nodes are drawn")
	p.click("#more-nodes button")
	m.listening("rule=rule-041") // the page asks for the rule that is open
	m.step()
	p.until(fmt.Sprintf(`document.querySelectorAll("#nodes .node .rule").length === %d`, manyNodes)) // of the rule that is open
	p.click("#more-nodes button")
	// Few rows, as axe-core is not sure of those at the edge of what scrolls.
	p.types("#rules input", "E-041")
	looksWellIn(p, look{width: 360, height: 900, theme: "light"}, look{width: 1440, height: 900, theme: "dark"})
}

// TestManyRulesWork counts what a moment of many rules has the page do: what is out of sight costs
// nothing to draw.
func TestManyRulesWork(t *testing.T) {
	t.Parallel()
	p, m := crowd(t, 0)
	p.run(`document.getElementById("rules").scrollIntoView()`) // what stands above has grown
	p.run(`{
		globalThis.did = {drawn: 0, mutations: 0, states: 0};
		const clear = CanvasRenderingContext2D.prototype.clearRect;
		CanvasRenderingContext2D.prototype.clearRect = function (...box) { if (this.canvas.closest("#live")) did.drawn++; clear.apply(this, box) };
		new MutationObserver((all) => { did.mutations += all.length }).observe(document.getElementById("live"), {subtree: true, childList: true, attributes: true, characterData: true});
	}`)
	const moments = 5
	for range moments {
		m.step()
	}
	p.until(fmt.Sprintf(`did.drawn >= %d`, moments))
	m.step() // the moments before it have been drawn by now
	got := value[map[string]int](p, "did")
	seen := value[int](p, `[...document.querySelectorAll("#rules tbody tr")].filter((row) => { const r = row.getBoundingClientRect(); return r.top < innerHeight && r.bottom > 0 }).length`)
	must.AtMost(t, got["drawn"], (moments+1)*40, "curves drawn for %d moments with %d rows in sight", moments, seen)
	must.AtMost(t, got["mutations"], (moments+1)*400, "changes of the page for %d moments", moments)
}

// BenchmarkFrames tells how smoothly the page goes on which is told of 256 rules, 50 proxies and 10,240 keys twice a
// second: frames a second, the longest wait for a frame but of one in a hundred, and the processor time of the
// browser's main thread for each moment.
func BenchmarkFrames(b *testing.B) {
	for _, shown := range []string{"table", "proxies"} {
		b.Run(shown, func(b *testing.B) {
			p, m := crowd(b, 20)
			p.until(`document.querySelectorAll("#tables tbody tr").length === 12`)
			if shown == "proxies" {
				p.click("#rules tbody tr button")
				p.click("#more-nodes button")
				m.listening("rule=rule-255")
			}
			must.Get(chromedp.Call(p.ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}))(b)
			busy := func() float64 {
				got := must.Get(chromedp.Call(p.ctx, performance.GetMetrics, cdp.Empty{}))(b)
				at := slices.IndexFunc(got.Metrics, func(m *performance.Metric) bool { return m.Name == "TaskDuration" })
				return got.Metrics[at].Value
			}
			p.run(`{
				globalThis.waits = [];
				let last = performance.now();
				const frame = (now) => { waits.push(now - last); last = now; requestAnimationFrame(frame) };
				requestAnimationFrame(frame);
			}`)
			before, often := busy(), time.NewTicker(500*time.Millisecond)
			defer often.Stop()
			for b.Loop() {
				m.step()
				<-often.C
			}
			after, waits := busy(), value[[]float64](p, "waits.slice(1)")
			slices.Sort(waits)
			total := 0.0
			for _, wait := range waits {
				total += wait
			}
			b.ReportMetric(1000*float64(len(waits))/total, "frames/s")
			b.ReportMetric(waits[len(waits)*99/100], "ms/wait99")
			b.ReportMetric(1000*(after-before)/float64(b.N), "ms/moment")
		})
	}
}
