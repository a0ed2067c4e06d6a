package browser

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"weir/internal/must"
)

// began is the tab of a test whose time stands at 0, without requests.
func began(t *testing.T) *page {
	t.Helper()
	t.Parallel()
	p := open(t, site, desktop)
	p.still()
	return p
}

// Lanes by their place in the page.
const (
	fixed = iota
	firstHit
	sliding
	subBuckets
	slidingLog
	tokens
	inFlight
	queue
	lanes
)

func TestHit(t *testing.T) {
	p := began(t)
	p.click("#hit")
	must.Equal(t, p.sent(), 1, "requests that a click sends")
	for range 11 {
		p.click("#hit")
	}
	want := slices.Repeat([]int{10}, lanes)
	want[queue] = 1 // of the others ten wait
	must.Same(t, p.passed(), want, "of 12 requests at once passed")
	must.Equal(t, p.text("#lanes .status"), "refused", "the last one was")
	must.Equal(t, p.text("#lanes .lane:nth-child(8) .just"), "The queue is full: 10 of 10 wait. The next goes on in 1.0\u00a0s.", "the queue says")
	// Without a pointer, as a screen reader does it.
	p.run(`document.getElementById("hit").click()`)
	must.Equal(t, p.sent(), 13, "a click without a pointer: requests")
}

func TestHoldRepeats(t *testing.T) {
	p := began(t)
	x, y := p.middle("#hit")
	p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, x, y, chromedp.ButtonLeft))
	p.until("playground.world.sent === 1")
	p.pass(time.Second) // one after 0.4 s, and so on
	must.Equal(t, p.sent(), 8, "a second of holding sends requests")
	p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, x, y, chromedp.ButtonLeft))
	p.until(`!document.getElementById("hit").classList.contains("held")`)
	p.pass(time.Second)
	must.Equal(t, p.sent(), 8, "after it was let go: requests")
}

func TestKeysHold(t *testing.T) {
	p := began(t)
	for _, key := range []struct {
		name, text string
		code       int64
	}{{" ", " ", 32}, {"Enter", "\r", 13}} {
		p.click("#restart")
		p.do(chromedp.Focus(chromedp.CSS("#hit")))
		press := func(kind input.DispatchKeyEventType) {
			t.Helper()
			params := input.DispatchKeyEventParams{Type: kind, Key: key.name, WindowsVirtualKeyCode: key.code, Text: key.text}
			must.Get(chromedp.Call(p.ctx, input.DispatchKeyEvent, params))(t)
		}
		press(input.DispatchKeyEventTypeKeyDown)
		p.pass(time.Second)
		press(input.DispatchKeyEventTypeKeyUp)
		p.pass(time.Second)
		must.Equal(t, p.sent(), 8, "a second of holding %q sends requests", key.name)
	}
}

func TestSteadyRate(t *testing.T) {
	p := began(t)
	p.slide("rate", 40)
	said := p.text("#rate-text")
	must.Equal(t, said, "5.1 a second", "the slider says")
	must.Equal(t, p.attribute("#rate", "aria-valuetext"), "5.1 requests a second", "a screen reader hears")
	p.pass(10 * time.Second)
	must.Equal(t, p.sent(), 51, "%s sends requests in 10 s", said)
	p.slide("rate", 0)
	p.pass(10 * time.Second)
	must.Equal(t, p.sent(), 51, "sent, as none sends no more")
	// A slow rate that is made a fast one does not wait for the slow one's next request.
	p.slide("rate", 10)
	p.slide("rate", 100)
	p.pass(100 * time.Millisecond)
	must.Equal(t, p.sent(), 56, "sent, as 50 a second sends 5 in 0.1 s")
}

func TestLimitAndWindow(t *testing.T) {
	p := began(t)
	p.slide("limit", 3)
	must.Equal(t, p.text("#limit-text"), "3 in a window", "the slider says")
	p.choose("window", "2")
	for range 5 {
		p.click("#hit")
	}
	want := slices.Repeat([]int{3}, lanes)
	want[queue] = 1
	must.Same(t, p.passed(), want, "of 5 requests at once passed")
	for _, header := range []string{`ratelimit-policy: "fixed-window";q=3;w=2`, "retry-after: 2", "x-envoy-ratelimited: true", "HTTP/1.1 429"} {
		must.Contains(t, p.text("pre"), header, "the response")
	}
	p.pass(2 * time.Second)
	p.click("#hit")
	// All of the window before counts at the beginning of one. The third that waits goes on a nanosecond
	// later: thirds of two seconds are rounded up.
	want = []int{4, 4, 3, 4, 4, 4, 4, 3}
	must.Same(t, p.passed(), want, "a window later passed")
}

func TestPauseAndStep(t *testing.T) {
	t.Parallel()
	p := open(t, site, desktop)
	now := func() float64 { return value[float64](p, "playground.world.now") }
	began := now()
	p.until(fmt.Sprintf("playground.world.now > %v", began))
	p.click("#pause")
	stood := now()
	p.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
	must.Equal(t, now(), stood, "time goes on while it is paused")
	must.Equal(t, p.text("#step"), "Step 0.2 s", "the button says")
	p.click("#step")
	must.Equal(t, now()-stood, 0.2e9, "ns of a step")
	p.click("#pause")
	p.until(fmt.Sprintf("playground.world.now > %v", stood+0.2e9))
}

func TestStartOver(t *testing.T) {
	p := began(t)
	for range 12 {
		p.click("#hit")
	}
	p.pass(3 * time.Second)
	p.click("#restart")
	must.Equal(t, p.sent(), 0, "sent")
	must.Equal(t, slices.Max(p.passed()), 0, "passed")
	must.Equal(t, value[float64](p, "playground.world.now"), 0, "it is")
	must.Equal(t, p.text("#lanes .just"), "No request has come yet.", "the lane says")
}

// Each preset shows what it says, in what the lanes let pass and in the most that passed in any window.
func TestPresets(t *testing.T) {
	p := began(t)
	for _, test := range []struct {
		name         string
		passes       time.Duration
		passed, most []int
	}{
		// A token has come back between the bursts, and one while the second one came.
		// The sliding window takes the first burst for spread over its window.
		{"edge", 20 * time.Second, []int{20, 10, 11, 10, 10, 12, 10, 12}, []int{20, 10, 11, 10, 10, 12, 10, 10}},
		// The first request is of another window than the bursts, where windows are the clock's, and has
		// left by the second burst in the others. The sliding window still counts a part of it.
		{"two", 20 * time.Second, []int{11, 20, 10, 11, 11, 13, 11, 9}, []int{10, 19, 10, 10, 10, 12, 10, 8}},
		// The second burst comes when the first one's sub-bucket leaves, in another window of the clock. The
		// bucket of tokens has nine of ten again.
		{"bucket", 25 * time.Second, []int{20, 10, 10, 20, 10, 19, 20, 15}, []int{20, 10, 10, 20, 10, 19, 10, 10}},
		{"slow", 60 * time.Second, slices.Repeat([]int{30}, lanes), []int{5, 5, 5, 5, 5, 5, 2, 5}},
		// A bucket lets its burst pass on top. The first request comes after a third of a second, and so
		// the windows and buckets of the clock begin anew sooner than a window after it.
		{"never", 60 * time.Second, []int{61, 60, 56, 61, 60, 69, 150, 60}, []int{11, 10, 10, 11, 10, 19, 10, 10}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p.t = t
			p.play(test.name, test.passes)
			must.Same(t, p.passed(), test.passed, "passed")
			most := value[[]int](p, `[...document.querySelectorAll("#lanes dd.most")].map((e) => parseInt(e.textContent))`)
			must.Same(t, most, test.most, "the most in any window")
			over := value[[]bool](p, `[...document.querySelectorAll("#lanes dd.most")].map((e) => e.classList.contains("over"))`)
			for i := range over {
				must.Equal(t, over[i], test.most[i] > 10, "lane %d is marked", i)
			}
			if p.text("#told") == "" {
				t.Error("nothing is told")
			}
			pressed := value[[]string](p, `[...document.querySelectorAll("#presets [aria-pressed=true]")].map((e) => e.dataset.preset)`)
			must.Same(t, pressed, []string{test.name}, "pressed are")
		})
	}
}

func TestThemeSwitch(t *testing.T) {
	t.Parallel()
	p := open(t, site, desktop)
	paper := func() string { return value[string](p, "getComputedStyle(document.documentElement).backgroundColor") }
	light := paper()
	p.choose("theme", "dark")
	dark := paper()
	must.Equal(t, dark == light, false, "dark looks like light")
	p.reload()
	must.Equal(t, paper(), dark, "after a reload")
	p.choose("theme", "system")
	must.Equal(t, paper(), light, "the system's")
}

// All responses open and close together.
func TestResponses(t *testing.T) {
	p := began(t)
	p.click("#lanes .lane:nth-child(3) summary")
	p.until(fmt.Sprintf(`document.querySelectorAll("details[open]").length === %d`, lanes))
	p.click("#lanes .lane:nth-child(5) summary")
	p.until(`document.querySelectorAll("details[open]").length === 0`)
}

// A listener to the page is told now and then, however many requests come.
func TestSpokenNowAndThen(t *testing.T) {
	p := began(t)
	p.click("#hit")
	p.until(`document.getElementById("spoken").textContent !== ""`)
	p.run(`globalThis.told = 0; new MutationObserver(() => told++).observe(document.getElementById("spoken"), {childList: true})`)
	p.slide("rate", 100)
	for range 20 {
		p.pass(100 * time.Millisecond)
	}
	must.AtMost(t, value[int](p, "told"), 1, "times that something is told of 100 requests")
}
