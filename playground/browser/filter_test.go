package browser

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// filters has two rules that refuse.
const filters = `{
  "namespace": "shop", "backend": {"cluster": "weir", "timeout": "1900ms"},
  "rules": [
    {"name": "per-team", "match": {"headers": {"x-team": {"present": true}}}, "key": [{"header": "x-team"}], "reveal": "plain",
     "limits": [{"limit": 5, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "per-user", "match": {"headers": {"x-user": {"present": true}}}, "key": [{"header": "x-user"}], "reveal": "plain",
     "limits": [{"limit": 10, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]}
  ]
}`

// TestLiveNamesNobody wants no key to be named of several that are refused alike.
func TestLiveNamesNobody(t *testing.T) {
	t.Parallel()
	p := visit(t, nodesOf(t, filters), liveLook)
	p.until(`document.querySelectorAll("#nodes .rule").length === 4`)
	address := p.text("#nodes .status")
	for i := range 5 * 11 {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil))(t)
		request.Header.Set("x-team", fmt.Sprint("team-", i%5))
		must.OK(t, must.Get(envoytest.Client.Do(request))(t).Body.Close())
	}
	p.until(says("live-who", ", spread over many keys."))
}

// TestLiveFilters wants a look at the page to tell who is refused and by which rule; a rule that is chosen in the
// chart or in the table to be the only one that all else shows; and a key to be found by its name, seen or not. All
// but the click on the chart is done with the keyboard.
func TestLiveFilters(t *testing.T) {
	t.Parallel()
	p := visit(t, nodesOf(t, filters), liveLook)
	p.until(`document.querySelectorAll("#nodes .rule").length === 4 && ` + says("live-who", ""))
	address := p.text("#nodes .status")
	send := func(header, value string, times int) {
		t.Helper()
		for range times {
			request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil))(t)
			request.Header.Set(header, value)
			must.OK(t, must.Get(envoytest.Client.Do(request))(t).Body.Close())
		}
	}
	send("x-user", "ann", 60)
	send("x-user", "bob", 2)
	send("x-user", "an", 1)
	send("x-team", "red", 15)
	p.until(`[...document.querySelectorAll("#by button")].map((e) => e.textContent).join() === "per-team,per-user"`)
	p.until(`/^Refused most: ann, by per-user since [^:]+:\d\d:\d\d[^:]*: .* a second, all of its refusals\.$/.test(document.getElementById("live-who").textContent)`)
	// Small curves have the colours of the theme: what is refused has more red in the dark one.
	p.wear(look{width: 1440, height: 1000, theme: "dark"})
	p.until(`((copy) => {
		copy.drawImage(document.querySelector("#rules tbody canvas"), 0, 0);
		const { data } = copy.getImageData(0, 0, 96, 24);
		return data.some((v, i) => i % 4 === 0 && v > 200 && data[i + 3] > 200);
	})(new OffscreenCanvas(96, 24).getContext("2d", { willReadFrequently: true }))`)
	p.wear(liveLook)

	keys := func(want string) {
		t.Helper()
		p.until(fmt.Sprintf(`[...document.querySelectorAll("#tables tbody th")].map((e) => e.textContent).sort().join() === %q`, want))
	}
	shows := func(rules ...string) {
		t.Helper()
		title := "Requests a second"
		if len(rules) == 1 {
			title += ": " + rules[0]
		}
		p.until(fmt.Sprintf(`document.getElementById("flow-title").textContent === %q`, title))
		for _, in := range []string{"#curves h2", "#nodes .node:first-child h3"} {
			p.until(fmt.Sprintf(`[...document.querySelectorAll(%q)].filter((e) => e.checkVisibility()).map((e) => e.textContent.split(":")[0]).join() === %q`, in, strings.Join(rules, ",")))
		}
	}
	keys("an,ann,bob,red")
	shows("per-team", "per-user")
	p.types("#by button", kb.Enter)
	shows("per-team")
	keys("red")
	p.until(`document.querySelector("#rules tbody [aria-pressed='true']").textContent === "per-team" && !document.querySelector("#by button")`)
	p.types("#all-rules", kb.Enter)
	shows("per-team", "per-user")
	keys("an,ann,bob,red")
	for title := ""; title != "Requests a second: per-user"; title = p.text("#flow-title") { // the chart moves on below the pointer
		if title == "Requests a second: per-team" {
			p.types("#all-rules", kb.Enter)
		}
		at := value[[]float64](p, `{
			const { left, right, top, bottom } = document.querySelector(".plot svg").getBoundingClientRect();
			const hits = [];
			for (let x = left; x < right; x += 6) for (let y = top; y < bottom; y += 6) if (document.elementFromPoint(x, y)?.dataset.rule === "per-user") hits.push([x, y]);
			hits[Math.floor(hits.length / 2)] ?? [0, 0];
		}`)
		p.do(chromedp.MouseClickXY(at[0], at[1]))
		p.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
	}
	shows("per-user")
	keys("an,ann,bob")
	looksWell(p)
	p.types("#rules tbody [aria-pressed='true']", kb.Enter) // once more: all again
	shows("per-team", "per-user")

	p.types("#find-key", "RE")
	keys("red")
	p.types("#find-key", "red"+kb.Enter)
	p.until(says("why-told", "red is refused by per-team: 5 of 5 in 1 hour."))
	p.types("#why-close", kb.Enter)
	p.types("#find-key", "an")
	keys("an,ann")
	p.types("#find-key", "an"+kb.Enter) // this name, though another is refused most
	p.until(says("why-told", "an passes per-user: 1 of 10 in 1 hour."))
	p.types("#why-close", kb.Enter)
	p.types("#find-key", "zoe")
	keys("")
	p.until(says("tables", "No proxy has reported such a key of late. Enter looks it up."))
	p.types("#find-key", "zoe"+kb.Enter)
	p.until(says("why-told", "zoe passes per-team: 0 of 5 in 1 hour."))
}

// TestLiveRange tells the page of two hours, and wants it to draw as much as was chosen, of which old points are few.
func TestLiveRange(t *testing.T) {
	t.Parallel()
	p, s := script(t)
	first := func(want string) {
		t.Helper()
		p.until(fmt.Sprintf(`[...document.querySelectorAll("#flow .x")].at(-1).dataset.text === %q`, want))
	}
	for n := int64(2); n < 14_400; n += 10 { // every five seconds
		s.events <- momentOf(n)
	}
	s.moment(14_400, 0)
	first("−5 min")
	p.types("#range", kb.ArrowDown)
	first("−50 min")
	must.Between(t, value[int](p, `document.querySelector("#flow polyline").points.numberOfItems`), 370, 400, "points, 330 every ten seconds, and 60 of the last minutes")
	// The mean is of time, not of points: those of the last minutes lie closer.
	s.moment(14_401, 0)
	p.until(`document.querySelector("#curves .mean").textContent.includes("; mean of the last 60 minutes: 10,8")`)
	p.types("#range", kb.ArrowUp+kb.ArrowUp)
	first("−1 min")
	p.until(`document.querySelector("#flow polyline").points.numberOfItems < 16`)
	s.moment(16_400, 0) // it goes on after a gap of many minutes
	p.until(curve("all: in 1 minute", "16,400 of 10"))
	s.moment(16_401, 0)
	p.until(curve("all: in 1 minute", "16,401 of 10") + ` && document.querySelector("#flow polyline").points.numberOfItems === 3`)
}

// TestLiveHasOneFigure wants the bar, the rules and the keys to tell the same number of refusals a second, whatever
// seconds a report covers; the bar to tell the share of all requests; and a key to be named as long as one stands out.
func TestLiveHasOneFigure(t *testing.T) {
	t.Parallel()
	p, s := script(t)
	const report = `{"rule": "all", "nodes": 2, "recent_seconds": 10, "recent": {"requests_per_second": 19.6, "hits_per_second": 19.6, "refused_requests_per_second": 19.6, "refused_hits_per_second": 19.6}, "used": [], "refused": [%s]}`
	const key = `{"hash": "%[1]s", "values": [{"text": "%[1]s"}], "recent_hits_per_second": %[2]v, "recent_refused_per_second": %[2]v, "use": 1}`
	n := 1
	tell := func(away bool, rules string) {
		t.Helper()
		for range 21 { // more than ten seconds of 9.2 refused of 36.8 requests in half a second
			n++
			s.events <- fmt.Sprintf(`event: moment
data: {"n": %d, "at": %d, "rules": [{"allowed": 0, "refused": %.1f, "overshoot": 0}], "most": [[10]], "all": {"requests": %.1f, "answered": %.1f, "waited": 0, "waited_ns": 0}, "nodes": [{"rules": []}, {"rules": []}]}

`, n, 1_767_225_600_000+500*n, 9.2*float64(n), 36.8*float64(n), 9.2*float64(n))
		}
		s.events <- fmt.Sprintf(`event: state
data: {"changes": 0, "backend": true, "faults": {"away": %t, "delay_ms": 0, "cut": []}, "load": {"rate": 0, "users": 1, "node": -1, "rule": "all"}, "sent": {"passed": 0, "refused": 0, "failed": 0}, "looked": {"top": {"rules": [%s]}}}

`, away, rules)
	}
	who := func(want string) {
		t.Helper()
		p.until(fmt.Sprintf(`document.getElementById("live-who").textContent.replace(/ since [^.:]+:\d\d:\d\d( [AP]M)?( or earlier)?/, "") === %q`, want))
		p.until(`document.querySelector("#rules td.color-refused").textContent === "18" && document.getElementById("live-share").textContent === "25 % refused" && document.getElementById("live-part").style.width === "25%"`)
		p.until(`!document.querySelector("#by button")`) // one rule refuses all that the chart has
	}
	tell(false, fmt.Sprintf(report, fmt.Sprintf(key, "ann", 19.6)))
	who("Refused most: ann, by all: 18 a second, all of its refusals.")
	p.until(`[...document.querySelectorAll("#tables tbody td")].map((e) => e.textContent).join() === "all,18,18," && document.querySelector("#tables td.color-refused").textContent === "18"`)
	tell(true, "")
	who("all refuses 18 a second. Refused most before: ann.")
	var equals []string
	for i := range 5 {
		equals = append(equals, fmt.Sprintf(key, fmt.Sprint("user-", i), 3.92))
	}
	tell(false, fmt.Sprintf(report, strings.Join(equals, ", ")))
	who("all refuses 18 a second, spread over many keys.")
	p.until(`[...document.querySelectorAll("#tables td.color-refused")].map((e) => e.textContent).join() === "3.7,3.7,3.7,3.7,3.7"`)
	tell(true, "")
	who("all refuses 18 a second.")
}

// TestLiveTellsItIsDead wants the bar at the top to say that nobody answers, and not that all is well.
func TestLiveTellsItIsDead(t *testing.T) {
	t.Parallel()
	run := nodesProcess(t, filters)
	p := visit(t, run.Wait(t, `^playground +(http://\S+)/$`), liveLook)
	p.until(says("live-title", "Shared") + ` && document.querySelectorAll("#nodes .rule").length === 4`)
	address := p.text("#nodes .status")
	ctx, stop := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	defer sending.Wait()
	defer stop()
	sending.Go(func() {
		often := time.NewTicker(20 * time.Millisecond)
		defer often.Stop()
		for ctx.Err() == nil {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
			if err != nil {
				return
			}
			request.Header.Set("x-user", "ann")
			if answer, err := envoytest.Client.Do(request); err == nil { // no proxy answers once weir run has ended
				answer.Body.Close()
			}
			select {
			case <-often.C:
			case <-ctx.Done():
			}
		}
	})
	p.until(says("live-who", "Refused most: ann, by per-user since "))
	p.click("#away")
	p.until(says("live-told", "Each proxy counts alone: up to twice the limit (per-user: 20 in place of 10 in 1 hour).")) // of what refuses, not of the page's traffic
	p.until(says("live-who", "per-user refuses ") + " && " + says("live-who", ". Refused most before: ann.") + " && " + says("tables", "Keys are not known while the backend is away."))
	run.Kill(t)
	p.until(`document.getElementById("stands").dataset.level === "dead" && ` + says("live-title", "No answer from weir run since ") + ` && document.getElementById("live-notice").hidden && document.querySelector("#flow .now").dataset.text !== "now"`)
	p.until(`/^Before: backend away since [^.]+\. per-user refuses [^:]+:\d\d:\d\d[^:]*\. Refused most before: ann\.$/.test(document.getElementById("live-who").textContent)`)
	p.run(`document.getElementById("away").focus()`)
	must.Equal(t, value[bool](p, `document.getElementById("live-share").checkVisibility() || document.activeElement.id === "away"`), false, "the page has a share of refused, or controls, while nobody answers")
	p.types("#rules tbody button", kb.Enter)
	p.until(says("flow-title", ": per-"))
	if got := p.text("#live-title"); !strings.HasPrefix(got, "No answer from weir run since ") {
		t.Errorf("what the page shows of the past has it say %q", got)
	}
	looksWell(p)
	p.expect()
}
