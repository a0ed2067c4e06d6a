package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/config"
	"weir/internal/must"
	"weir/playground/lane"
)

// The page opens a second before the burst at a window's edge, and plays it again and again.
func TestOpening(t *testing.T) {
	t.Parallel()
	p := open(t, site, desktop)
	must.Equal(t, p.text("#pause"), "Pause", "while time runs the button says")
	p.click("#pause")
	must.Equal(t, p.text("#pause"), "Go on", "while time stands the button says")
	p.click("#pause")
	// As soon as it begins anew it is a second before the first request, which comes at 8.86 s.
	p.run(`playground.world.advance(30e9)`)
	p.until("playground.world.now < 10e9")
	must.AtLeast(t, value[float64](p, "playground.world.now"), 7.86e9, "it begins at")
	must.Equal(t, p.attribute("[data-preset=edge]", "aria-pressed"), "true", "the preset is pressed")
	// A request of the visitor's own is not taken away.
	p.click("#hit")
	p.run(`playground.world.advance(60e9)`)
	p.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
	must.AtLeast(t, value[float64](p, "playground.world.now"), 60e9, "after a hit it is at, or it began anew")
}

// The page names its lanes as package lane does, in its order.
func TestLaneNames(t *testing.T) {
	t.Parallel()
	p := open(t, site, desktop)
	got := value[[]string](p, `import("./lanes.js").then(({ lanes }) => lanes.map((lane) => lane.name))`)
	must.EqualOrEnd(t, len(got), len(lane.Kinds), "lanes")
	for i, kind := range lane.Kinds {
		must.Equal(t, got[i], kind.Name, "lane %d is", i)
	}
}

func TestSpeed(t *testing.T) {
	p := began(t)
	p.choose("speed", "16")
	must.Equal(t, value[float64](p, "playground.clock.speed"), 16, "the speed is")
	// Each frame is at most a tenth of a second.
	passed := value[float64](p, `new Promise((done) => {
		const { clock } = playground, tick = clock.onTick;
		clock.onTick = (passed) => { clock.onTick = tick; done(passed) };
		clock.pause();
		const now = performance.now;
		performance.now = () => -1e6;
		clock.run();
		performance.now = now;
	})`)
	must.Equal(t, passed, 1.6e9, "ns of a frame")
}

// The address says what is set, and opens it. Values that the page can't have are as if they were absent.
func TestAddress(t *testing.T) {
	t.Parallel()
	search := func(p *page, want string) {
		t.Helper()
		p.until(fmt.Sprintf("location.search === %q", want))
	}
	// The tab of each part is closed with it: an open page draws, and keeps a processor busy.
	t.Run("told", func(t *testing.T) {
		p := open(t, site, desktop)
		search(p, "")
		p.slide("limit", 20)
		p.choose("window", "30")
		p.choose("speed", "4")
		search(p, "?limit=20&window=30&speed=4&rate=0")
		p.click("#presets [data-preset=bucket]")
		search(p, "?limit=20&window=30&speed=4&preset=bucket")
		p.click("[data-lane=sliding-log] [data-preset]")
		search(p, "?limit=20&window=30&speed=4&lane=sliding-log&preset=never")
		p.slide("rate", 40)
		search(p, "?limit=20&window=30&speed=4&lane=sliding-log&rate=5.1")
	})
	t.Run("opened", func(t *testing.T) {
		p := open(t, site, look{width: 1440, height: 900, theme: "light", path: "/?limit=20&window=30&speed=4&lane=sliding-log&rate=5.1"})
		got := value[[]any](p, `[playground.world.limit, playground.world.window, playground.clock.speed, playground.world.rate, document.querySelector(".pointed h2").textContent,
			document.getElementById("limit-text").textContent, document.getElementById("window").value, document.getElementById("speed").value]`)
		must.Equal(t, fmt.Sprint(got), "[20 3e+10 4 5.1 Sliding log 20 in a window 30 4]", "the address opens %v", got)
	})
	for _, wrong := range []string{"limit=0", "limit=51", "limit=1e1", "limit=2.5", "window=11", "speed=2", "rate=-1", "lane=<i>", "preset=constructor", "preset=" + url.QueryEscape("__proto__")} {
		t.Run(wrong, func(t *testing.T) {
			p := open(t, site, look{width: 1440, height: 900, theme: "light", path: "/?" + wrong})
			got := value[[]any](p, `[playground.world.limit, playground.world.window, playground.clock.speed, playground.world.rate, document.querySelectorAll(".pointed").length]`)
			must.Equal(t, fmt.Sprint(got), "[10 1e+10 1 0 0]", "the address opens %v", got)
		})
	}
}

func TestCopyLink(t *testing.T) {
	p := began(t)
	p.slide("limit", 20)
	p.run(`Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => { globalThis.copied = text }}})`)
	p.click("#copy")
	p.until(`document.getElementById("copied").textContent === "Copied."`)
	must.Equal(t, value[string](p, "copied"), value[string](p, "location.origin")+"/?limit=20&rate=0", "copied")
	p.run(`navigator.clipboard.writeText = async () => { throw new Error("no") }`)
	p.click("#copy")
	p.until(`document.getElementById("copied").textContent.startsWith("The browser does not")`)
}

// An embedded lane is alone, and leads to the whole page. Nothing that has effects is in it.
func TestEmbed(t *testing.T) {
	t.Parallel()
	p := open(t, site, look{width: 600, height: 500, theme: "light", path: "/?embed=sliding-log&limit=20#live"})
	seen := value[[]string](p, `[...document.querySelectorAll("h1, h2, button, input, select, summary, a, canvas")].filter((e) => e.checkVisibility()).map((e) => e.tagName + " " + e.textContent)`)
	must.Equal(t, fmt.Sprint(seen), "[H1 How a limit counts H2 Sliding log CANVAS  A All lanes, in Weir’s playground]", "seen are")
	must.Equal(t, p.attribute("#whole", "href"), "./?limit=20&lane=sliding-log", "the link leads to")
	fits(p)
	accessible(p)
}

// Each screen has its lane, whose hits are those of all lanes, a client to play, and a rule that the parser takes.
func TestScreens(t *testing.T) {
	p := began(t)
	for i, kind := range lane.Kinds {
		screen := fmt.Sprintf("[data-lane=%s]:nth-child(%d) ", kind.Name, i+2)
		p.click(screen + ".hit")
		must.Equal(t, p.text(screen+".lane dd.passed"), strconv.Itoa(p.passed()[i]), "%s: passed", kind.Name)
		must.Equal(t, p.sent(), i+1, "%s: hits sent", kind.Name)
		p.click(screen + "summary")
		p.until(fmt.Sprintf(`document.querySelector(%q).textContent !== ""`, screen+".use pre"))
		_, err := config.Parse([]byte(p.text(screen + ".use pre")))
		must.Reportf(t, err, "%s", kind.Name)
	}
	p.run(`Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => { globalThis.copied = text }}})`)
	for i, kind := range lane.Kinds {
		screen := fmt.Sprintf("[data-lane=%s]:nth-child(%d) ", kind.Name, i+2)
		p.click(screen + "[data-preset]")
		must.Equal(t, value[int](p, `[...document.getElementById("lanes").children].findIndex((e) => e.classList.contains("pointed"))`), i, "%s points at lane", kind.Name)
		must.Equal(t, value[int](p, `document.querySelectorAll("#presets [aria-pressed=true]").length`), 1, "%s: presets that play", kind.Name)
		for copied, want := range map[string]string{"link": "lane=" + kind.Name, "frame": "embed=" + kind.Name, "rule": `"name": "` + kind.Name} {
			p.click(screen + "[data-copy=" + copied + "]")
			p.until(fmt.Sprintf(`globalThis.copied.includes(%q)`, want))
		}
	}
}

// Two proxies in the page keep to one limit, and without the backend each counts alone.
func TestPair(t *testing.T) {
	t.Parallel()
	p := open(t, site, desktop)
	p.run(`document.getElementById("pair").scrollIntoView()`)
	p.until(`document.querySelectorAll("#pair :disabled").length === 0`)
	told := func(part string) { t.Helper(); p.until(says("pair-told", part)) }
	p.click("[data-proxy='0']")
	told("1 have passed since the start: 1 at A, 0 at B. 1 of 1 requests have waited")
	p.choose("pair-limit", "20")
	p.click("[data-burst='0']")
	told(" of 40 requests")
	p.click("[data-burst='1']")
	told(" of 80 requests")
	must.Equal(t, strings.HasPrefix(p.text("#pair-verdict"), "Kept: "), true, "it says %q", p.text("#pair-verdict"))
	p.click("#pair-away")
	p.until(says("pair-verdict", "each proxy counts alone, so up to 40 may pass"))
	p.click("#pair-away")
	p.until(says("pair-left", " of 20 left"))
}

// TestSentencesAreTrue plays each preset, and a rate that no preset has, with several limits, and holds
// each lane's sentences to what has become of its requests: counted anew, by their times.
func TestSentencesAreTrue(t *testing.T) {
	p := began(t)
	for _, limit := range []int{1, 10, 50} {
		for _, preset := range []string{"edge", "never", "two", "bucket", "slow", ""} {
			found := value[json.RawMessage](p, fmt.Sprintf(sentences, limit, preset, (30*time.Second).Nanoseconds()))
			must.Equal(t, string(found), "[]", "limit %d, preset %q: %s", limit, preset, found)
		}
	}
}

// sentences finds a lane’s sentences that are not so.
const sentences = `(() => {
	const limit = %d, preset = %q, until = %d, wrong = [];
	const { world, clock } = playground;
	const slider = document.getElementById("limit");
	slider.value = limit;
	slider.dispatchEvent(new Event("input"));
	if (preset) document.querySelector("[data-preset=" + preset + "]").click();
	else { world.setRate(2.3 * limit / 10); }
	clock.pause();
	const w = world.window;
	const flight = 6, queue = 7;
	const all = world.lanes.map((_, i) => ({ passed: [], first: 0, refused: 0, most: 0, strict: 0, lets: [], token: 0, reach: i === flight ? w * 2 / 5 : w }));
	let seen = 0;
	// pass counts what has passed at a time, and goOn what waits in the queue until then.
	const pass = (lane, at) => {
		lane.passed.push(at);
		while (lane.passed[lane.first] <= at - lane.reach) lane.first++;
		lane.most = Math.max(lane.most, lane.passed.length - lane.first);
	};
	const goOn = (lane, until) => {
		while (lane.lets[0] <= until) pass(lane, lane.lets.shift());
	};
	// count counts anew, by the times of what passed.
	const count = (request, i) => {
		const lane = all[i];
		goOn(lane, request.at);
		let passes = request.passed >> i & 1;
		if (i === queue) {
			const at = Math.max(lane.token, request.at);
			passes = lane.lets.length === 0 && at === request.at;
			const waits = !passes && lane.lets.length < limit;
			if (passes || waits) lane.token = at + w / limit;
			if (waits) {
				lane.lets.push(at);
				return;
			}
		}
		if (passes) pass(lane, request.at);
		else {
			while (lane.passed[lane.first] <= request.at - lane.reach) lane.first++;
			lane.refused++;
			if (lane.passed.length - lane.first < limit) lane.strict++;
		}
	};
	while (world.now < until) {
		clock.step(0.71e9);
		for (const request of world.requests.slice(world.requests.length - (world.sent - seen))) all.forEach((_, i) => count(request, i));
		seen = world.sent;
		goOn(all[queue], world.now);
		playground.draw();
		document.querySelectorAll("#lanes > .lane").forEach((card, i) => {
			const text = (selector) => card.querySelector(selector).textContent.replaceAll("\u00a0", " ");
			const say = (problem) => wrong.push([world.now / 1e9, text("h2"), text(".verdict"), text(".just"), problem]);
			const { passed, refused, most, strict } = all[i];
			const numbers = (sentence) => (sentence.match(/\d+(\.\d+)?/g) ?? []).map(Number);
			const verdict = text(".verdict");
			const want = passed.length + refused === 0 ? [] : i === flight ? [most, limit] : [most, limit, w / 1e9, ...(most <= limit && strict > 0 ? [strict] : [])];
			if (JSON.stringify(numbers(verdict)) !== JSON.stringify(want)) say("the verdict is " + want);
			if (verdict && verdict.startsWith("Kept") !== most <= limit) say("it is the other way round");
			if (text("dd.passed") !== "" + passed.length || text("dd.refused") !== "" + refused) say("the counts are others");
			if (seen === 0) return;
			const { remaining, quota, next } = world.look(i);
			const just = text(".just");
			const full = remaining === 0;
			if (i === queue) {
				const waiting = all[i].lets;
				if (quota - remaining !== waiting.length) say(waiting.length + " wait");
				if (waiting.length === 0 ? just !== "Nobody waits." : numbers(just)[0] !== waiting.length || numbers(just)[1] !== limit) say(waiting.length + " wait");
				if (waiting.length > 0 && Math.abs(numbers(just).at(-1) - (waiting[0] - world.now) / 1e9) > 0.051) say("one goes on at " + waiting[0]);
				if (full !== just.includes("full")) say(remaining + " have room");
				if (most > limit) say("a queue is smooth");
				return;
			}
			if (i === flight) {
				const there = passed.filter((at) => at > world.now - w * 2 / 5).length;
				if (numbers(just)[0] !== there || numbers(just)[1] !== limit || remaining !== limit - there) say(there + " are in flight");
				if (full !== just.includes("One more passes")) say(remaining + " are left");
				if (strict > 0) say("a place was free");
				return;
			}
			if (just.startsWith("No window")) { if (remaining !== quota) say(remaining + " are left"); return; }
			const n = numbers(just);
			const kind = world.lanes.length > i && text("h2");
			// What the sentence says that is used leaves what the column says that is left.
			if (kind.startsWith("Fixed") && (full ? !just.includes("has had its " + quota) : n[0] !== quota - remaining || n[1] !== quota)) say(remaining + " are left");
			if (kind === "Token bucket" && (just.includes("full") ? remaining !== quota || n[0] !== quota : n[0] !== remaining || n[1] !== quota)) say(remaining + " are left");
			if ((kind === "Sub-buckets" || kind === "Sliding log") && (n[0] !== quota - remaining || n[1] !== quota)) say(remaining + " are left");
			if (kind === "Sliding window") {
				const [previous, share, current, used] = n;
				if (Math.abs(previous * share / 100 + current - used) > previous * 0.005 + 0.051) say("the sum is another");
				if (Math.abs(quota - used - remaining) > 1) say(remaining + " are left");
			}
			if (just.includes("One more passes in") && !full) say("one passes now");
			if (full && !kind.startsWith("Fixed") && Math.abs(n.at(-1) - next / 1e9) > 0.051) say("one passes in " + next);
			// The preset's own words.
			const told = document.getElementById("told").textContent;
			if (preset === "slow" && refused > 0) say(told);
			if (preset === "edge" && kind === "Fixed window" && world.now > 15e9 && most !== 2 * limit) say(told);
			if (preset === "bucket" && kind === "Sub-buckets" && world.now > 22e9 && most !== 2 * limit) say(told);
			if (kind === "Sliding log" && (most > limit || strict > 0)) say("a log is exact");
		});
	}
	return wrong.slice(0, 4);
})()`
