package browser

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/playground"
	"weir/window"
)

func command(t *testing.T, args ...string) *commandtest.Process {
	t.Helper()
	return commandtest.Start(t, exec.Command("../../dist/weir", args...))
}

// configuration has a rule of 10 an hour for each user, and a rule of two selectors, which shows
// the keys as they are. Nodes wait for long, because after a wait in vain a node decides alone and passes more than the
// limit. Windows of the nodes' own clock begin with the first hit, so that none ends during a test.
const configuration = `{
  "namespace": "shop", "sync_rate": 0.1, "backend": {"cluster": "weir", "timeout": "1900ms"},
  "rules": [
    {"name": "per-user", "key": [{"header": "x-user"}], "reveal": "plain",
     "limits": [{"limit": 10, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "all", "mode": "shadow", "limits": [{"limit": 100, "window": "1m"}]}
  ]
}`

// nodes starts weir run with two nodes, and returns the page's address.
func nodes(t *testing.T) string {
	t.Helper()
	return nodesOf(t, configuration)
}

func nodesOf(t *testing.T, configuration string, args ...string) string {
	t.Helper()
	return nodesProcess(t, configuration, args...).Wait(t, `^playground +(http://\S+)/$`)
}

func nodesProcess(t *testing.T, configuration string, args ...string) *commandtest.Process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.json")
	must.OK(t, os.WriteFile(file, []byte(configuration), 0o600))
	args = append([]string{"run", "--config", file, "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "--workers", "1"}, args...)
	return command(t, args...)
}

// liveLook is how most tests have the live view.
var liveLook = look{width: 1440, height: 1000, theme: "light", path: "/#live"}

// sum is a number of all nodes, as the page shows it.
func sum(class string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#nodes :is(b, span).%s")].reduce((sum, e) => sum + Number(e.textContent.replace(",", "")), 0)`, class)
}

// says is whether an element's text has another text in it.
func says(id, text string) string {
	return fmt.Sprintf(`document.getElementById(%q).textContent.replaceAll("\u00a0", " ").includes(%q)`, id, text)
}

// curve is whether the curve of a title tells a text.
func curve(title, text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#curves .curve")].some((e) =>
		e.querySelector("h2").textContent === %q && e.querySelector(".status").textContent === %q && e.querySelector("svg").getAttribute("aria-label") === %q)`,
		title, text, title+": "+text)
}

// points is how many points the first curve has.
const points = `(document.querySelector("#curves polyline")?.points.numberOfItems ?? 0)`

// TestLive does everything that one can do to nodes, and wants it to be seen.
func TestLive(t *testing.T) {
	t.Parallel()
	p := visit(t, nodes(t), liveLook)
	p.until(`document.querySelectorAll("#nodes .node").length === 2 && document.querySelectorAll("#nodes .rule").length === 4`)
	told := func(text string) {
		t.Helper()
		p.until(says("live-told", text))
	}
	told("2 proxies count together, by 2 rules.")
	p.until(`document.getElementById("idle").checkVisibility()`)

	// 20 requests of one user, of which both nodes together let 10 pass. The shadow rule counts what is
	// charged.
	p.click("[data-burst='20']")
	p.until(curve("per-user: in 1 hour", "10 of 10"))
	p.until(says("sent", "10 passed, 10 refused, 0 failed"))
	p.until(`document.querySelectorAll("#figures b")[1].textContent === "50 %" && document.querySelector("#flow polygon.refused") && document.querySelectorAll("#rules tbody tr").length === 2`)
	must.AtMost(t, value[float64](p, `document.getElementById("flow").getBoundingClientRect().bottom`), 900, "the bottom of the chart, on the first screen")
	p.until(sum("refused") + ` === 10`)

	// A larger limit is in force without anything else.
	p.types("#new-limits-0", "25")
	p.click("#set-limit")
	p.until(`document.getElementById("new-limits-0").value === "25"`)
	p.slide("load-rate", 100)
	p.until(curve("per-user: in 1 hour", "25 of 25"))
	p.slide("load-rate", 0)

	// A backend that is away is told of, and nodes decide alone.
	p.slide("load-users", 50)
	p.click("#away")
	told("Each proxy counts alone: up to twice the limit (per-user: 50 in place of 25 in 1 hour).")
	p.until(`/^Backend away since \d+:\d\d:\d\d/.test(document.getElementById("live-title").textContent) && document.getElementById("stands").dataset.level === "degraded"`)
	p.slide("load-rate", 200)
	p.until(sum("alone") + ` > 0 && ` + sum("failed_callouts") + ` > 0`)
	p.slide("load-rate", 0)
	p.click("#away")
	p.until(`document.getElementById("away").textContent === "Stop the backend"`)
	told("What passed without it is counted now")

	// One node is cut off.
	p.click("#cut button")
	told("Proxy 0 counts alone: up to twice the limit (per-user: 50 in place of 25 in 1 hour).")
	p.click("#cut button")
	told("What passed without it is counted now")

	// Answers are late, and too late.
	p.choose("delay", "50")
	p.until(`document.getElementById("delay").value === "50"`)
	p.choose("delay", "2000")
	told("Its answers take longer than the 1900 ms that proxies wait. Each proxy counts alone")
	p.choose("delay", "0")

	p.click("#unset-limit")
	p.until(`document.getElementById("new-limits-0").value === "10"`)
	// Reports have come: a key is shown as it is, as the rule reveals it.
	p.until(`[...document.querySelectorAll("#tables tbody th")].some((e) => e.textContent === "user-1")`)
}

// leasing has a rule whose hits are leased, a rule that each node counts alone, and a rule of two
// limits.
const leasing = `{
  "namespace": "shop", "backend": {"cluster": "weir", "timeout": "30s"},
  "rules": [
    {"name": "leased", "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "alone", "sync_rate": -1, "limits": [{"limit": 500, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "both", "limits": [{"limit": 300, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"},
       {"limit": 400, "window": "1d", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "own", "key": [{"header": "x-user"}], "limits": [{"limit": 20, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}], "mode": "shadow",
     "overrides": {"keys": [{"key": ["ann"], "limits": [{"limit": 900, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]}]}}
  ]
}`

// The page shows requests of others as its own: by limit, over all nodes, with the nodes' leases
// and calls. A page that comes later sees what was before.
func TestLiveSeesOthers(t *testing.T) {
	t.Parallel()
	url := nodesOf(t, leasing)
	p := visit(t, url, liveLook)
	p.until(`document.querySelectorAll("#nodes .rule").length === 8`)
	addresses := value[[]string](p, `[...document.querySelectorAll("#nodes .status")].map((e) => e.textContent)`)
	for i := range 90 {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addresses[min(i%3, 1)]+"/", nil))(t)
		request.Header.Set("x-user", []string{"ann", "bob", "ann", "ann"}[i%4])
		answer := must.Get(envoytest.Client.Do(request))(t)
		answer.Body.Close()
	}
	for _, want := range [][2]string{
		{"leased: in 1 hour", "67 of 1,000"}, // of ann
		{"alone: in 1 hour", "90 of 500"},    // 30 at one node, 60 at the other
		{"both: in 1 hour", "90 of 300"},
		{"both: in 1 day", "90 of 400"},
		{"own (shadow): in 1 hour", "67 of 20"}, // ann's own limit is larger
	} {
		p.until(curve(want[0], want[1]))
	}
	hints := value[[]string](p, `[...document.querySelectorAll("#curves .hint")].map((e) => e.textContent)`)
	must.Same(t, hints, []string{
		"Hits that count, of the key with most, all nodes together.",
		"Hits that count, of the key with most at each node, added up, because nodes count alone.",
		"Hits that count, of the key with most, all nodes together.",
		"Hits that count, of the key with most, all nodes together.",
		"Hits that count, of the key with most, all nodes together. Keys may have limits of their own, which the line does not show.",
	}, "curves are of")
	must.Equal(t, value[int](p, `document.querySelectorAll("#curves .status.refused").length`), 0, "limits look as though they were exceeded")
	// A rule that leases nothing says nothing of leases.
	p.until(`[...document.querySelectorAll("#nodes .node")].every((node) => [...node.querySelectorAll(".rule")].every((rule) => {
		const held = rule.querySelector(".held");
		return rule.querySelector("h3").textContent === "alone" ? held.hidden : /^[\d,]+ free hits? in \d leases?$/.test(held.textContent) && !held.hidden;
	}))`)
	p.until(`[...document.querySelectorAll("#nodes .held")].some((e) => /^[1-9]/.test(e.textContent))`)
	p.until(sum("callouts") + ` > 0 && ` + sum("failed_callouts") + ` === 0 && ` + sum("waited") + ` > 0`)
	p.until(says("sent", "0 passed, 0 refused, 0 failed"))

	seen := value[int](p, points)
	later := visit(t, url, liveLook)
	later.until(fmt.Sprintf("%s >= %d", points, seen))
	later.until(curve("leased: in 1 hour", "67 of 1,000"))

	// Requests that pass without the backend are seen at once, and still there when the backend is
	// back.
	p.click("#away")
	later.until(says("live-title", "Backend away"))
	later.click("[data-burst='200']")
	p.until(says("sent", "200 passed, 0 refused, 0 failed"))
	p.until(curve("both: in 1 hour", "290 of 300"))
	p.until(sum("failed_callouts") + ` > 0 && ` + sum("alone") + ` > 0`)
	looksWell(p)
	p.click("#away")
	p.until(says("live-told", "2 proxies count together") + " || " + says("live-told", "What passed without it"))
	p.until(curve("both: in 1 hour", "290 of 300"))
}

// Requests that have another answer than a limiter's, or none, are told.
func TestLiveTellsFailures(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	p := visit(t, nodesOf(t, `{"rules": [{"name": "all", "limits": [{"limit": 30, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]}]}`, "--upstream", gone.URL), liveLook)
	p.until(`document.querySelectorAll("#nodes .rule").length === 2`)
	p.click("[data-burst='200']")
	p.until(says("sent", "0 passed, 140 refused, 60 failed"))
	p.until(curve("all: in 1 hour", "60 of 30"))
	must.Equal(t, value[int](p, `document.querySelectorAll("#curves .status.refused").length`), 1, "limits look as though they were exceeded")
}

// TestLiveIsGuarded wants nobody else's page to see or do anything.
func TestLiveIsGuarded(t *testing.T) {
	t.Parallel()
	url := nodes(t)
	for _, test := range []struct {
		name, method, path, host, origin, header string
		status                                   int
	}{
		{"a page's own change", "POST", "/live/burst", "", url, "1", http.StatusNoContent},
		{"no page's change", "POST", "/live/burst", "", "", "1", http.StatusNoContent},
		{"localhost", "GET", "/live.json", "localhost:1", "", "", http.StatusOK},
		{"no header", "POST", "/live/burst", "", url, "", http.StatusForbidden},
		{"another origin", "POST", "/live/burst", "", "http://evil.test", "1", http.StatusForbidden},
		{"another port", "POST", "/live/burst", "", "http://127.0.0.1:1", "1", http.StatusForbidden},
		{"no origin that has a name", "POST", "/live/burst", "", "null", "1", http.StatusForbidden},
		{"a name that was bound anew", "POST", "/live/burst", "evil.test", "http://evil.test", "1", http.StatusMisdirectedRequest},
		{"a name that was bound anew, to look", "GET", "/live/events", "evil.test", "", "", http.StatusMisdirectedRequest},
		{"a name like an address", "GET", "/live/events", "127.0.0.1.evil.test", "", "", http.StatusMisdirectedRequest},
		{"another origin that asks why", "GET", "/live/why?rule=per-user&key=ann", "", "http://evil.test", "", http.StatusForbidden},
		{"a name that was bound anew, to ask why", "GET", "/live/why?rule=per-user&key=ann", "evil.test", "", "", http.StatusMisdirectedRequest},
		{"another origin's limit", "POST", "/live/limit", "", "http://evil.test", "1", http.StatusForbidden},
		{"a limit without the header", "POST", "/live/limit", "", url, "", http.StatusForbidden},
		{"another origin's override", "PUT", "/v1/overrides?namespace=shop", "", "http://evil.test", "1", http.StatusForbidden},
		{"an override without the header", "PUT", "/v1/overrides?namespace=shop", "", url, "", http.StatusForbidden},
		{"a name that was bound anew, to reset", "POST", "/v1/counter?namespace=shop", "evil.test", "http://evil.test", "1", http.StatusMisdirectedRequest},
		{"another origin that asks who has changed what", "GET", "/v1/changes?namespace=shop", "", "http://evil.test", "", http.StatusForbidden},
		{"a change by a link", "GET", "/live/burst", "", "", "1", http.StatusNotFound},
		{"leave to send the header", "OPTIONS", "/live/burst", "", "http://evil.test", "", http.StatusForbidden},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := must.Get(http.NewRequestWithContext(t.Context(), test.method, url+test.path, strings.NewReader(`{"requests": 1}`)))(t)
			request.Host = test.host
			for name, value := range map[string]string{"origin": test.origin, "x-weir": test.header} {
				if value != "" {
					request.Header.Set(name, value)
				}
			}
			answer := must.Get(envoytest.Client.Do(request))(t)
			answer.Body.Close()
			must.Equal(t, answer.StatusCode, test.status, "status")
			must.Equal(t, answer.Header.Get("access-control-allow-origin"), "", "is given leave")
		})
	}
}

// looksWell wants the page to be whole and accessible in each look.
func looksWell(p *page) {
	p.t.Helper()
	for _, theme := range themes {
		for _, width := range widths {
			looksWellIn(p, look{width: width, height: 900, theme: theme})
		}
	}
}

func looksWellIn(p *page, looks ...look) {
	p.t.Helper()
	for _, l := range looks {
		p.wear(l)
		p.until("document.getAnimations().length === 0")
		fits(p)
		accessible(p)
	}
}

// lively is a live view with some traffic, which ended, and keys.
func lively(t *testing.T) *page {
	p := visit(t, nodes(t), liveLook)
	p.until(`document.querySelectorAll("#nodes .rule").length === 4`)
	p.slide("load-users", 5)
	p.slide("load-rate", 20)
	p.until(sum("refused") + ` > 40`)
	p.until(`document.querySelectorAll("#tables tbody tr").length >= 5`)
	return p
}

func TestLiveScreenshots(t *testing.T) {
	p := lively(t)
	p.click("#away")
	p.until(says("live-title", "Backend away since "))
	p.slide("load-users", 6)
	p.until(sum("alone") + ` > 20`)
	p.run("document.activeElement.blur()")
	p.picture(look{width: 1440, height: 1180, theme: "light"}, "live-")
}

// TestWatch has weir serve show what a node reports, to those who have the token. Keys are text,
// and the token is nowhere.
func TestWatch(t *testing.T) {
	const token, key = "s3cret", `<img src=x onerror=alert(1)>`
	t.Setenv("WEIR_TOKEN", token)
	served := command(t, "serve", "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0")
	const log = `msg="the (?:counter backend listens|page is served)" address=(\S+)`
	addresses := []string{served.Wait(t, log), served.Wait(t, log)}
	backend, page := addresses[0], addresses[1]
	send(t, http.MethodPost, "http://"+backend+wire.PushPath, token, wire.ContentType, wire.AppendReport(nil, &wire.Report{
		Namespace: "shop", Node: 7, Sender: 1, AtNanos: uint64(time.Now().UnixNano()), Rules: []wire.RuleReport{{
			Name: "per-user", SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 500, Hits: 500, RefusedRequests: 100, RefusedHits: 100}, Every: 1,
			Used:    wire.KeyList{Keys: []wire.ReportKey{{ID: wire.ID{1}, Hits: 400, Use: 900, Name: wire.AppendValue(nil, []byte(key), false)}}},
			Refused: wire.KeyList{Keys: []wire.ReportKey{{ID: wire.ID{2}, Hits: 100, Use: 1000}}},
		}, {
			Name: "quiet", SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 10}, Every: 1,
		}},
	}))
	send(t, http.MethodPut, "http://"+backend+"/v1/overrides?namespace=shop", token, "application/json",
		[]byte(`{"overrides": [{"rule": "per-user", "key": ["ann"], "limits": [{"limit": 77, "width_ms": 60000}]}]}`))

	p := visit(t, "http://"+page, look{width: 1440, height: 1000, theme: "light", path: "/#live"})
	p.until(`!document.getElementById("ask").hidden && document.getElementById("things").hidden`)
	p.ask("guessed")
	p.until(`document.getElementById("live-notice").textContent === "Refused: authorization: want the bearer token"`)
	must.Contains(t, p.expect(), "401", "the console says")
	p.ask(token)
	p.until(`document.getElementById("live-told").textContent === "1 proxy reports of shop. The store takes hits."`)
	for _, text := range []string{key, "02000000000000000000000000000000"} {
		p.until(fmt.Sprintf(`[...document.querySelectorAll("#tables tbody th")].some((e) => e.textContent === %q)`, text))
	}
	p.until(says("overrides-list", "per-user ann77 in 1 minute"))
	must.Equal(t, p.text("#nodes b.refused"), "10 a second", "refused")
	p.until(curve("per-user: share of the limit", "100 %"))
	p.until(curve("quiet: share of the limit", "no proxy has reported a key"))
	// A key that is clicked tells what the store has of it, and by whom that was asked.
	p.click("#tables tbody tr:nth-child(2) button")
	p.until(`document.getElementById("why-told").textContent === ` + fmt.Sprintf("%q", key) + ` + " of per-user: 90 % of its nearest limit was used when a proxy saw it last."`)
	// Figures that a backend does not know are not there.
	must.Equal(t, value[int](p, `document.querySelectorAll("#nodes dl, #nodes .held:not([hidden])").length`), 0, "figures that no backend knows")
	// A page that comes later sees what was before.
	p.until(points + ` >= 2`)
	seen := value[int](p, points)
	p.run(`document.getElementById("curves").replaceChildren()`)
	p.ask(token)
	p.until(fmt.Sprintf("%s >= %d", points, seen))
	if value[bool](p, fmt.Sprintf(`document.images.length > 0 || location.href.includes(%[1]q) || document.cookie !== "" ||
		performance.getEntriesByType("resource").some((e) => e.name.includes(%[1]q)) || Object.values(localStorage).includes(%[1]q)`, token)) {
		t.Error("the token is kept, or a key is a picture")
	}
	looksWell(p)
}

// ask asks weir serve for the namespace shop by a token.
func (p *page) ask(token string) {
	p.t.Helper()
	p.types("#ask-namespace", "shop")
	p.types("#ask-token", token)
	p.click("#ask button")
}

// watched starts weir serve with its page, for a token that looks and one that does.
func watched(t *testing.T) (backend, page string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	must.OK(t, os.WriteFile(file, []byte("shop looks verbs=read\nshop does verbs=push,change name=eve\n"), 0o600))
	served := command(t, "serve", "--token-file", file, "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0")
	const log = `msg="the (?:counter backend listens|page is served)" address=(\S+)`
	return served.Wait(t, log), served.Wait(t, log)
}

// TestWatchChanges resets a counter and sets a limit by the page of weir serve, with a token that may,
// and wants who did it, and why, to be on the page. With a token that may not, the page has the commands
// alone.
func TestWatchChanges(t *testing.T) {
	t.Parallel()
	backend, page := watched(t)
	id := wire.ID{1}
	send(t, http.MethodPost, "http://"+backend+wire.PushPath, "does", wire.ContentType, wire.AppendReport(nil, &wire.Report{
		Namespace: "shop", Node: 7, Sender: 1, AtNanos: uint64(time.Now().UnixNano()), Rules: []wire.RuleReport{{
			Name: "per-user", SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 50, Hits: 50}, Every: 1,
			Used: wire.KeyList{Keys: []wire.ReportKey{{ID: id, Hits: 50, Use: 1000, Name: wire.AppendValue(nil, []byte("ann"), false)}}},
		}},
	}))
	hour := uint64(time.Hour / time.Millisecond)
	send(t, http.MethodPost, "http://"+backend+wire.PushPath, "does", wire.ContentType, wire.AppendPush(nil, &wire.Push{
		Namespace: "shop", Node: 7, Sender: 1, Sequence: 1, Floor: 1, Items: []wire.Item{{
			LimitCounter: wire.LimitCounter{ID: id, Kind: uint8(window.Named("fixed_window")), WidthMillis: hour}, Newest: uint64(time.Now().UnixMilli()) / hour, Hits: []int64{40},
		}},
	}))
	p := visit(t, "http://"+page, look{width: 1440, height: 1000, theme: "light"})
	p.until(`location.hash === "#live" && document.getElementById("ask-token").checkVisibility()`) // it opens on the live view
	open := func(token string) {
		t.Helper()
		p.run(`document.querySelectorAll("#tables tbody button").forEach((button) => { button.dataset.before = ""; })`)
		p.ask(token)
		p.click("#tables tbody button:not([data-before])") // the view of an earlier token stays until the namespaces are there
		p.until(says("why-told", "ann has used 40 hits of per-user.") + ` && document.getElementById("act").checkVisibility()`)
	}
	open("looks")
	p.until(says("act-command-reset", "weir counter reset shop per-user ann"))
	must.Equal(t, value[bool](p, `["act-reset", "act-set"].some((id) => document.getElementById(id).checkVisibility())`), false, "a token that may not change has buttons for that")
	open("does")
	p.until(`document.getElementById("act-reset").checkVisibility()`)
	p.types("#act-reason", "a wrong import")
	p.types("#act-limits-0", "500")
	p.click("#act-set")
	p.until(says("act-told", "The limit is 500 in 1 hour."))
	p.until(says("why-told", "ann passes per-user: 40 of 500 in 1 hour.") + " && " + says("changes-list", "set override: per-user ann, none → 500/1h until "))
	p.click("#act-reset")
	p.until(says("act-told", "The counter is empty."))
	p.until(says("changes-list", "reset counter: per-user ann, 40 in 1h → 0 in 1h") + " && " + says("changes-list", "by eve from 127.0.0.1: a wrong import"))
	looksWell(p)
}

// TestWatchMovesRules switches a rule to shadow with another limit, all rules off, which has to be confirmed, and
// both back, by the page of weir serve and with the keyboard alone. Who may not change anything has no such fields.
// Rules that proxies tell meanwhile change nothing of what was chosen, and a bucket keeps its burst.
func TestWatchMovesRules(t *testing.T) {
	t.Parallel()
	backend, address := watched(t)
	tell := func(shapes ...wire.RuleShape) {
		t.Helper()
		told := wire.AppendTold(nil, 1, shapes)
		report := wire.Report{Namespace: "shop", Node: 7, Sender: 1, AtNanos: uint64(time.Now().UnixNano()), Digest: wire.DigestOf(told), Rules: []wire.RuleReport{{
			Name: "per-user", SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 50, Hits: 50}, Every: 1,
		}}}
		send(t, http.MethodPost, "http://"+backend+wire.PushPath, "does", wire.ContentType, wire.AppendReport(nil, &report))
		report.Told = told
		send(t, http.MethodPost, "http://"+backend+wire.PushPath, "does", wire.ContentType, wire.AppendReport(nil, &report))
	}
	shapes := []wire.RuleShape{
		{Name: "per-user", Key: []byte{0, 0}, Limits: []wire.ToldLimit{{Limit: window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: 60e9}, Max: 100}}}},
		{Name: "new", Limits: []wire.ToldLimit{{Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 1e9}, Max: 5}}}},
	}
	tell(shapes...)
	open := func(token string) *page {
		t.Helper()
		p := visit(t, "http://"+address, look{width: 1440, height: 1000, theme: "light"})
		p.until(`location.hash === "#live" && document.getElementById("ask-token").checkVisibility()`)
		p.types("#ask-namespace", "shop")
		p.types("#ask-token", token+kb.Enter)
		p.until(says("live-told", "1 proxy reports of shop. The store takes hits."))
		return p
	}
	p := open("looks")
	must.Equal(t, value[bool](p, `document.getElementById("move").checkVisibility()`), false, "a token that may not change has fields for that")
	p = open("does")
	p.until(`document.getElementById("move").checkVisibility()`)
	must.Equal(t, value[string](p, `[...document.getElementById("move-rule").options].map((o) => o.textContent).join()`), "per-user,new,all rules", "the rules are")
	// A key that nobody has reported is asked for by its name, and has what its rule's proxies have told.
	p.types("#find-key", "zoe"+kb.Enter)
	p.until(says("why-told", "zoe passes per-user: 0 of 100 in 1 minute.") + " && " + says("why-title", "zoe, by per-user") + " && " + says("why-facts", "Found by its name."))
	p.until(says("act-command-reset", "weir counter reset shop per-user zoe") + ` && document.getElementById("act-set").checkVisibility()`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`document.getElementById("why").hidden`)
	p.types("#move-mode", "shadow")
	p.types("#move-limits-0", "500")
	p.types("#move-until", "6")
	p.types("#move-reason", "refuses everybody")
	p.until(says("move-command", "weir rule set shop per-user --mode shadow --limit 500/1m --until 6h --reason 'refuses everybody'"))
	p.types("#move-reason", kb.Enter)
	p.until(`document.getElementById("move-reason").matches(":invalid") && document.getElementById("move-told").textContent === ""`)
	p.types("#move-reason", "refuses everybody"+kb.Enter)
	p.until(says("move-told", "per-user is set: shadow, 500 in 1 minute.") + " && " + says("overrides-list", "per-usershadow, 500 in 1 minute, until "))
	p.until(says("changes-list", "by eve from 127.0.0.1: refuses everybody"))

	p.types("#move-rule", "all")
	p.types("#move-until", "until")
	p.until(says("move-command", "weir rule off --all shop --reason 'refuses everybody'"))
	p.until(says("move-command-reset", "weir rule reset --all shop --reason 'refuses everybody'"))
	p.types("#move-set", kb.Enter)
	p.until(says("move-sure", "All rules of shop stop: every request passes, on all proxies.") + " && document.getElementById('move-sure').open")
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`!document.getElementById("move-sure").open`)
	p.types("#move-set", kb.Enter)
	p.until(`document.getElementById("move-sure").open`)
	// Another rule comes, ahead of the others, while the page asks: the answer is for what was asked.
	tell(append([]wire.RuleShape{{Name: "bucket", Limits: []wire.ToldLimit{{Limit: window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 1e9}, Max: 10, Burst: 100}}}}}, shapes...)...)
	const later = `{ const now = Date.now; Date.now = () => now() + 15_000; }`
	p.run(later)
	p.until(`document.getElementById("move-rule").options[0].value === "bucket"`)
	p.types("#move-off", kb.Enter)
	p.until(says("move-told", "All rules are set: off.") + " && " + says("overrides-list", "*off"))
	must.Equal(t, value[int](p, `[...document.querySelectorAll("#changes-list b")].filter((e) => e.textContent.includes("off")).length`), 1, "changes to off: what was not confirmed is none")
	p.types("#move-reset", kb.Enter)
	p.until(says("move-told", "All rules are as before.") + " && !" + says("overrides-list", "*off"))
	p.types("#move-rule", "per")
	p.types("#move-reset", kb.Enter)
	p.until(says("move-told", "per-user is as before.") + " && " + says("overrides-none", "None."))
	p.types("#move-rule", "bucket")
	p.types("#move-mode", "as")
	p.types("#move-limits-0", "20")
	p.until(says("move-command", "weir rule set shop bucket --limit 20/1s/100 --reason 'refuses everybody'"))
	p.types("#move-set", kb.Enter)
	p.until(says("changes-list", "set rule: bucket, none → 20/1s/100"))
	tell(shapes...)
	p.run(later)
	p.until(says("move-told", "No proxy has the rule bucket any more.") + ` && document.getElementById("move-rule").value === ""`)
	looksWell(p)
}

// A page goes on where a stream has ended, and does not show what no node reports any more as though it
// were so now.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	const rule = `{"rule": "r", "nodes": 1, "used": [], "refused": []}`
	streams := []string{ // each ends
		`event: moment
data: {"n": 1, "at": 1000, "rules": [{"rule": "r", "passed": 5, "refused": 0, "use": 0.25}]}

event: watched
data: {"at": 1000, "ready": true, "top": {"nodes": 1, "rules": [` + rule + `]}}

`, `event: moment
data: {"n": 2, "at": 31000, "rules": []}

event: watched
data: {"at": 31000, "ready": true, "top": {"nodes": 0, "rules": []}}

`, `event: moment
data: {"n": 1, "at": 41000, "rules": [{"rule": "r", "passed": 5, "refused": 0, "use": 0.5}]}

event: watched
data: {"at": 41000, "ready": true, "top": {"nodes": 1, "rules": [` + rule + `]}}

`,
	}
	told, next := make(chan string, len(streams)), make(chan int, len(streams))
	server := behind(`{"live": "serve", "token": true}`)
	server.HandleFunc("/v1/watch", func(w http.ResponseWriter, r *http.Request) {
		select {
		case i := <-next:
			told <- r.Header.Get("last-event-id")
			w.Header().Set("content-type", "text/event-stream")
			fmt.Fprint(w, streams[i])
		case <-r.Context().Done():
		}
	})
	p := open(t, server, look{width: 1440, height: 1000, theme: "light", path: "/#live"})
	p.click("#ask button")
	for i, want := range []struct{ last, curve, shown string }{
		{"0", "25 %", "1"}, {"1", "no proxy reports", "0"}, {"2", "50 %", "1"},
	} {
		next <- i
		p.until(curve("r: share of the limit", want.curve))
		p.until(`document.querySelectorAll("#nodes .node:not([hidden])").length === ` + want.shown)
		// Where no proxy reports, the page says how one does.
		p.until(fmt.Sprintf(`document.getElementById("live-next").checkVisibility() === %t`, want.shown == "0"))
		if want.shown == "0" {
			p.until(says("live-next", "\"namespace\": \"default\",\n\"backend\": {\"cluster\": \"weir\"}") + " && " + says("live-told", "This is no error."))
		}
		must.Equal(t, <-told, want.last, "stream %d: the page was told", i)
	}
	// The last server has begun anew.
	must.Equal(t, value[int](p, points), 1, "points")
}

// behind is what a server behind the page has besides what a test is about: its live.json, no changes, overrides and
// namespaces, and the page's files.
func behind(live string) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(playground.Files()))
	mux.HandleFunc("/live.json", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, fstest.MapFS{"live.json": {Data: []byte(live)}}, "live.json")
	})
	for _, path := range []string{"GET /v1/changes", "GET /v1/overrides", "GET /v1/namespaces"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"changes": [], "overrides": [], "namespaces": []}`)
		})
	}
	return mux
}

// serving opens the page of a server like weir serve, which tells once how it stands. answer has the calls
// about keys, and the changes. Before it is a proxy that knows people by a cookie.
func serving(t *testing.T, watched string, answer http.HandlerFunc) *page {
	t.Helper()
	server := behind(`{"live": "serve", "token": true}`)
	server.HandleFunc("/v1/watch", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
		fmt.Fprintf(w, "event: watched\ndata: %s\n\n", watched)
		if http.NewResponseController(w).Flush() == nil {
			<-r.Context().Done()
		}
	})
	server.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "application/json")
		answer(w, r)
	})
	proxy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "known", Value: "1"})
		if _, err := r.Cookie("known"); err != nil && strings.HasPrefix(r.URL.Path, "/v1/") {
			http.Error(w, "sign in", http.StatusForbidden)
			return
		}
		server.ServeHTTP(w, r)
	})
	p := open(t, proxy, look{width: 1440, height: 1000, theme: "light", path: "/#live"})
	p.ask("s3cret")
	return p
}

// TestWatchTellsPartly wants the page to say that a part of the store is away, and not that all is.
func TestWatchTellsPartly(t *testing.T) {
	t.Parallel()
	p := serving(t, `{"at": 1000, "ready": true, "partly": true, "since": 1000, "top": {"nodes": 1, "rules": []}}`, http.NotFound)
	p.until(says("live-title", "A part of the store away since ") + " && " + says("live-told", "All other keys are counted together.") + ` && document.getElementById("stands").dataset.level === "degraded"`)
}

// TestWatchTellsWhy wants the page to tell what the store has of a key that is clicked: its windows, a
// block, an override, and who holds places.
func TestWatchTellsWhy(t *testing.T) {
	t.Parallel()
	asked := make(chan *http.Request, 100)
	const told = `{"at": 1000, "ready": true, "top": {"nodes": 1, "rules": [{"rule": "r", "nodes": 1, "refused": [], "used": [` +
		`{"hash": "ab", "values": [{"text": "ann"}], "hits_per_second": 1, "use": 1}, {"hash": "cd", "hits_per_second": 0.5, "use": 0.5}]}]}}`
	p := serving(t, told, func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		if r.URL.Query().Get("id") == "cd" {
			fmt.Fprint(w, `{"known": true, "limits": [{"algorithm": "in_flight", "width_ms": 1, "used": 2}], "holders": [{"node": "07", "places": 2, "oldest_ms": 90000}]}`)
			return
		}
		fmt.Fprint(w, `{"known": true, "limits": [{"algorithm": "fixed_window", "width_ms": 60000, "used": 7, "reset_ms": 30000}, {"algorithm": "block", "width_ms": 1, "used": 1, "reset_ms": 120000}],
				"override": {"limits": [{"limit": 7, "width_ms": 60000}]}}`)
	})
	tells := func(id, text string) {
		t.Helper()
		p.until(says(id, text))
	}
	p.click("#tables tbody tr:nth-child(1) button")
	tells("why-told", "ann is blocked by r, whatever room it has.")
	tells("why-next", "The block ends in 2 min.")
	tells("why-limits", "a limit in 1 minute (fixed window)7 used, all back in 30 s")
	tells("why-facts", "A block is in force, and ends in 2 min at the latest")
	tells("why-facts", "An override of this key decides: 7 in 1 minute, until somebody unsets it.")
	if r := <-asked; r.URL.RawQuery != "namespace=shop&id=ab&rule=r&key=ann" || r.Header.Get("authorization") != "Bearer s3cret" {
		t.Errorf("the page asks for %s, with %q", r.URL.RawQuery, r.Header.Get("authorization"))
	}
	looksWellIn(p, look{width: 360, height: 900, theme: "light"}, look{width: 1440, height: 900, theme: "dark"})
	p.click("#tables tbody tr:nth-child(2) button")
	tells("why-told", "cd has used 2 hits of r. 50 % of its nearest limit was used when a proxy saw it last.")
	tells("why-facts", "An override is known by the key’s whole name")
	tells("why-facts", "Proxy 07 holds 2, the oldest for 1 min 30 s.")
}

// TestWatchSets wants an override that the page sets to have the number that somebody types, and all else as it is: a
// bucket keeps its burst, and a month has the length that overrides know it by. An override that is not there is not
// told to be removed.
func TestWatchSets(t *testing.T) {
	t.Parallel()
	asked, late := make(chan string, 1), make(chan bool)
	p := serving(t, `{"at": 1000, "ready": true, "may_change": true, "top": {"nodes": 1, "rules": [{"rule": "r", "nodes": 1, "refused": [], "used": [{"hash": "ab", "values": [{"text": "ann"}], "use": 1}, {"hash": "cd", "values": [{"text": "bob\u0003'\u202e"}], "use": 1}]}]}}`, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"known": true, "limits": [{"algorithm": "token_bucket", "width_ms": 1000, "used": 3, "limit": 10, "burst": 100, "left": 97},
				{"algorithm": "fixed_window", "width_ms": 3080763294, "period": "month", "used": 5, "limit": 500, "left": 495}], "override": {"rule": "r", "key": ["ann"], "limits": [{"limit": 10, "width_ms": 1000}]}}`)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		asked <- r.Method + " " + string(body)
		if r.Method == http.MethodPost {
			select {
			case <-late:
			case <-r.Context().Done():
			}
		}
		fmt.Fprintf(w, `{"version": 1, "changed": %d}`, map[string]int{http.MethodPut: 1, http.MethodPost: 1}[r.Method])
	})
	p.click("#tables tbody button")
	p.until(says("why-told", "ann passes r: 3 of 100 at once, 10 in 1 second."))
	must.Equal(t, value[string](p, `[...document.querySelectorAll("#act-limits .field")].map((f) => f.textContent + "=" + f.querySelector("input").value).join()`), "Hits in 1 second=10,Hits in 1 month=500", "the fields are")
	p.until(says("why-limits", "500 in 1 month (fixed window)"))
	p.types("#act-limits-0", "12")
	p.types("#act-limits-1", "600")
	p.choose("act-until", "")
	p.types("#act-reason", "more")
	p.until(says("act-command-set", "weir override set shop r ann 12/1s/100 600/31d --reason more"))
	p.click("#act-set")
	must.Equal(t, <-asked, `PUT {"overrides":[{"rule":"r","key":["ann"],"limits":[{"limit":12,"width_ms":1000,"burst":100},{"limit":600,"width_ms":2678400000}]}]}`, "the page asks for")
	p.until(says("act-told", "The limit is 12 in 1 second, 600 in 1 month."))
	p.click("#act-unset")
	must.Equal(t, <-asked, "DELETE ", "the page asks for")
	p.until(says("act-told", "Nothing is removed: no such override is there."))
	p.click("#act-reset")
	<-asked
	p.click("#tables tbody tr:nth-child(2) button")
	p.until(says("act-command-reset", `weir counter reset shop r $'bob\x03\'\xe2\x80\xae'`))
	late <- true
	p.until(says("act-told", "ann, by r: The counter is empty."))
}

// send sends what has to be taken.
func send(t *testing.T, method, url, token, contentType string, body []byte) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body)))(t)
	request.Header.Set("authorization", "Bearer "+token)
	request.Header.Set("content-type", contentType)
	answer := must.Get(envoytest.Client.Do(request))(t)
	answer.Body.Close()
	must.EqualOrEnd(t, answer.StatusCode, http.StatusOK, "%s: %s", url, answer.Status)
}
