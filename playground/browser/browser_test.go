// Package browser tests the playground as its visitors have it: in Chromium, without a window.
package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdp "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/internal/must"
	"weir/playground"
)

// hang is how long nothing takes.
const hang = 5 * time.Minute

// chromium is the browser in which all tests have tabs.
var chromium context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if !playground.Built() {
		fmt.Fprintln(os.Stderr, "the playground's engine is not there: make build makes it")
		return 1
	}
	path, err := exec.LookPath("chromium-headless-shell") // takes two thirds of the whole browser's time
	if err != nil {
		path, err = exec.LookPath("chromium")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err, "\nscripts/test-dependencies installs it")
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Flag("hide-scrollbars", false), chromedp.Flag("disable-gpu", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	var stop context.CancelFunc
	chromium, stop = chromedp.NewContext(allocator)
	defer stop()
	if err := chromedp.Do(chromium); err != nil {
		fmt.Fprintln(os.Stderr, path, err)
		return 1
	}
	return m.Run()
}

// look is how a visitor has the page.
type look struct {
	width, height int64
	theme         string // the system's
	calm          bool   // whether the system wants little motion
	path          string
}

func (l look) name() string { return fmt.Sprint(l.theme, "-", l.width) }

// site serves the page to all tests. It compresses each file once.
var site = playground.Handler()

var desktop = look{width: 1440, height: 900, theme: "light"}

// page is a tab with the playground.
type page struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string      // what the console has told
	told     chan struct{} // has an element after it has told something
}

// open opens the playground of a server, and waits until it is there.
func open(t testing.TB, handler http.Handler, l look) *page {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return visit(t, server.URL, l)
}

// visit opens the page of a server that runs, and waits until it is there.
func visit(t testing.TB, url string, l look) *page {
	t.Helper()
	p := tabOf(t, url, l)
	p.until(`"ready" in document.documentElement.dataset`)
	return p
}

func tabOf(t testing.TB, url string, l look) *page {
	t.Helper()
	tab, closeTab := chromedp.NewContext(chromium)
	ctx, end := context.WithTimeout(tab, hang)
	p := &page{t: t, ctx: ctx, told: make(chan struct{}, 1)}
	t.Cleanup(func() {
		end()
		closeTab()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Errorf("the console says: %s", problem)
		}
	})
	must.OK(t, chromedp.Listen(tab, func(event any) {
		switch e := event.(type) {
		case *cdp.EventConsoleAPICalled:
			if e.Type == cdp.ConsoleAPICalledTypeError || e.Type == cdp.ConsoleAPICalledTypeWarning {
				p.problem(fmt.Sprint(e.Type, " ", string(e.Args[0].Value), e.Args[0].Description))
			}
		case *cdp.EventExceptionThrown:
			p.problem(e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
				p.problem(e.Entry.Text + " " + e.Entry.URL)
			}
		}
	}))
	p.wear(l)
	p.do(chromedp.Navigate(url + l.path))
	return p
}

func (p *page) wear(l look) {
	p.t.Helper()
	motion := "no-preference"
	if l.calm {
		motion = "reduce"
	}
	_, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 500,
	})
	must.OK(p.t, err)
	_, err = chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: l.theme}, {Name: "prefers-reduced-motion", Value: motion},
	}})
	must.OK(p.t, err)
}

func (p *page) problem(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, text)
	select {
	case p.told <- struct{}{}:
	default:
	}
}

// expect waits until the console has told problems, and takes them. Those of a test that expects some are none.
func (p *page) expect() string {
	p.t.Helper()
	select {
	case <-p.told:
	case <-p.ctx.Done():
		p.t.Fatal("the console tells of no problem")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := strings.Join(p.problems, "\n")
	p.problems = nil
	return all
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	must.OK(p.t, chromedp.Do(p.ctx, actions...))
}

// until waits until an expression is true in the page, also if another page is just replacing it.
func (p *page) until(expression string) {
	p.t.Helper()
	for {
		err := chromedp.Do(p.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(hang)))
		if err == nil {
			return
		}
		must.EqualOrEnd(p.t, p.replaced(err), true, "%s: %v", expression, err)
	}
}

// replaced reports whether an error means that another page was just replacing the page: the expression
// was not evaluated.
func (p *page) replaced(err error) bool {
	return p.ctx.Err() == nil && err != nil && strings.Contains(err.Error(), "Cannot find context")
}

// reload loads the page anew, and waits until it is there.
func (p *page) reload() {
	p.t.Helper()
	p.run(`globalThis.old = true`)
	p.do(chromedp.Reload())
	p.until(`!globalThis.old && "ready" in document.documentElement.dataset`)
}

// value returns the value of an expression in the page.
func value[T any](p *page, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	for p.replaced(err) {
		v, err = chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	}
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// still has the page's time stand, and begin anew without requests.
func (p *page) still() {
	p.t.Helper()
	if p.text("#pause") == "Pause" {
		p.click("#pause")
	}
	p.slide("rate", 1)
	p.slide("rate", 0)
	p.click("#restart")
}

func (p *page) run(statement string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](statement, chromedp.EvalAwaitPromise))
}

// pass has time pass that stands still.
func (p *page) pass(d time.Duration) {
	p.t.Helper()
	p.run(fmt.Sprintf("playground.clock.step(%d)", d.Nanoseconds()))
}

// click clicks an element. If something comes meanwhile and moves it away from where the click goes, it is clicked
// again.
func (p *page) click(selector string) {
	p.t.Helper()
	for range 10 {
		// The element is found and listened to in one step: another may take its place at any time.
		p.until(fmt.Sprintf(`((element) => {
			globalThis.clicked = false;
			element?.addEventListener("click", () => { globalThis.clicked = true; }, { once: true, capture: true });
			return Boolean(element);
		})(document.querySelector(%q))`, selector))
		p.do(chromedp.Click(chromedp.CSS(selector)))
		// Two frames later its event has come, or it never will. Another page does not have the variable.
		if value[bool](p, `new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(() => then(globalThis.clicked !== false))))`) {
			return
		}
	}
	p.t.Fatalf("%s: no click arrives", selector)
}

// types has an element get keys as from a keyboard, in the place of what a field has.
func (p *page) types(selector, keys string) {
	p.t.Helper()
	p.run(fmt.Sprintf(`document.querySelector(%q).focus()`, selector))
	if value[bool](p, `document.activeElement.matches("input")`) {
		keys = kb.End + strings.Repeat(kb.Backspace, value[int](p, `document.activeElement.value.length`)) + keys
	}
	p.keys(selector, keys)
}

// keys has an element get keys as from a keyboard.
func (p *page) keys(selector, keys string) {
	p.t.Helper()
	p.run(fmt.Sprintf(`document.querySelector(%q).focus()`, selector))
	p.do(chromedp.KeyEvent(keys))
}

// slide moves a slider as a visitor does: a click brings it near, and arrows to the value.
func (p *page) slide(id string, to int) {
	p.t.Helper()
	at := value[[]float64](p, fmt.Sprintf(`{
		const e = document.getElementById(%q), to = %d;
		e.scrollIntoView({ block: "nearest" });
		const r = e.getBoundingClientRect();
		[r.x + 8 + ((r.width - 16) * (to - e.min)) / (e.max - e.min), r.y + r.height / 2];
	}`, id, to))
	p.do(chromedp.MouseClickXY(at[0], at[1]))
	p.keys("#"+id, arrows(to-value[int](p, fmt.Sprintf(`Number(document.getElementById(%q).value)`, id)), kb.ArrowLeft, kb.ArrowRight))
}

// arrows are so many of the one or the other key.
func arrows(steps int, down, up string) string {
	if steps < 0 {
		return strings.Repeat(down, -steps)
	}
	return strings.Repeat(up, steps)
}

func (p *page) text(selector string) string {
	p.t.Helper()
	return value[string](p, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// passed is how many requests each lane has let pass.
func (p *page) passed() []int {
	p.t.Helper()
	return value[[]int](p, `[...document.querySelectorAll("#lanes dd.passed")].map((e) => Number(e.textContent))`)
}

func (p *page) sent() int {
	p.t.Helper()
	return value[int](p, "playground.world.sent")
}

// play plays a preset up to a time after its beginning.
func (p *page) play(preset string, until time.Duration) {
	p.t.Helper()
	p.click(fmt.Sprintf("#presets [data-preset=%s]", preset))
	p.click("#pause")
	p.run(fmt.Sprintf("playground.clock.step(%d - playground.world.now)", until.Nanoseconds()))
}

// choose chooses an option with the arrows.
func (p *page) choose(id, option string) {
	p.t.Helper()
	steps := value[int](p, fmt.Sprintf(`{ const s = document.getElementById(%q); [...s.options].findIndex((o) => o.value === %q) - s.selectedIndex }`, id, option))
	p.keys("#"+id, arrows(steps, kb.ArrowUp, kb.ArrowDown))
}

func (p *page) attribute(selector, name string) string {
	p.t.Helper()
	return value[string](p, fmt.Sprintf("document.querySelector(%q).getAttribute(%q)", selector, name))
}

// middle is where the middle of an element is.
func (p *page) middle(selector string) (x, y float64) {
	p.t.Helper()
	at := value[[]float64](p, fmt.Sprintf(`{ const r = document.querySelector(%q).getBoundingClientRect(); [r.x + r.width / 2, r.y + r.height / 2] }`, selector))
	return at[0], at[1]
}
