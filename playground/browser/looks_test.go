package browser

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/playground"
)

var (
	themes = []string{"light", "dark"}
	widths = nightly.Or([]int64{360, 820, 1440, 2560}, []int64{360, 1440})
)

// TestLooks opens the page in both themes at two widths, at four by night, and wants each look to be whole, drawn in
// its colours, and accessible.
func TestLooks(t *testing.T) {
	t.Parallel()
	for _, theme := range themes {
		for _, width := range widths {
			l := look{width: width, height: 900, theme: theme}
			t.Run(l.name(), func(t *testing.T) {
				t.Parallel()
				p := open(t, site, l)
				p.play("never", 24*time.Second)
				drawn(p)
				if bottom := value[float64](p, "document.querySelector('canvas').getBoundingClientRect().bottom"); width == 360 && bottom > 640 {
					t.Errorf("the first picture ends at %v", bottom)
				}
				if columns := value[int](p, "new Set([...document.querySelectorAll('#lanes > *')].map((e) => e.offsetLeft)).size"); width > 1200 && columns != 3 {
					t.Errorf("the lanes are in %d columns", columns)
				}
				p.click("summary")
				fits(p)
				p.run("if (innerWidth <= 560) scrollTo(0, 1e6)") // where the bar, below on a phone, lies on nothing
				accessible(p)
			})
		}
	}
}

func axe(t testing.TB) string {
	t.Helper()
	code, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	must.OKf(t, err, "scripts/test-dependencies fetches it")
	return string(code)
}

// accessible wants axe-core to find nothing, and nothing that it is not sure of.
func accessible(p *page) {
	p.t.Helper()
	p.run(axe(p.t))
	found := value[json.RawMessage](p, `axe.run(document, {resultTypes: ["violations", "incomplete"]}).then((r) =>
		[...r.violations, ...r.incomplete].map((v) => ({id: v.id, help: v.help, count: v.nodes.length, first: v.nodes[0].html + " " + v.nodes[0].failureSummary})))`)
	must.Equal(p.t, string(found), "[]", "what axe-core finds")
}

// fits wants nothing to scroll sideways, and nothing to be cut off at the side.
func fits(p *page) {
	p.t.Helper()
	must.AtMost(p.t, value[int64](p, "document.documentElement.scrollWidth - innerWidth"), 0, "pixels by which the page is wider than the window")
	outside := value[[]string](p, `[...document.body.querySelectorAll("*:not(.unseen, .unseen *, .skip)")].filter((e) => {
		const r = e.getBoundingClientRect();
		const cut = e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).display !== "inline";
		return r.width > 0 && (r.left < -1 || r.right > innerWidth + 1 || cut);
	}).map((e) => e.outerHTML.slice(0, 80))`)
	must.Equal(p.t, strings.Join(outside, "\n"), "", "cut off or outside")
}

// drawn wants each lane's picture to have what passed and what was refused, in the colours of the
// theme.
func drawn(p *page) {
	p.t.Helper()
	counts := value[[][]int](p, `{
		playground.draw(); // what is out of sight is not drawn as time goes on
		const colour = (name) => {
			const e = document.createElement("i");
			e.className = "color-" + name;
			document.body.append(e);
			const c = getComputedStyle(e).color.match(/[\d.]+/g).map(Number);
			e.remove();
			return c;
		};
		const wanted = [colour("passed"), colour("refused")];
		[...document.querySelectorAll("#lanes canvas")].map((canvas) => {
			const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
			return wanted.map(([r, g, b]) => {
				let n = 0;
				for (let i = 0; i < data.length; i += 4) {
					const off = Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b);
					if (off < 6 && data[i + 3] > 250) n++;
				}
				return n;
			});
		});
	}`)
	must.EqualOrEnd(p.t, len(counts), lanes, "pictures")
	for i, count := range counts {
		must.AtLeast(p.t, count[0], 50, "lane %d: pixels of what passed", i)
		must.AtLeast(p.t, count[1], 50, "lane %d: pixels of what was refused", i)
	}
}

// TestKeyboard goes through the page by the tabulator key, and wants it to come to each control, in
// their order, and each to be seen when it has the focus.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	p := open(t, site, desktop)
	want := []string{"skip", "theme", "to-chooser"}
	for i := range 1 + lanes {
		screen := []string{"BUTTON", []string{"slow", "edge", "two", "never", "bucket", "never", "never", "never", "edge"}[i]}
		if i == 0 {
			screen = append(screen, "edge", "never", "SUMMARY") // no rule of its own
		} else {
			screen = append(screen, "SUMMARY", "SUMMARY")
		}
		want = append(want, screen...)
	}
	want = append(want, "hit", "rate", "speed", "pause", "step", "restart", "limit", "window", "edge", "never", "two", "bucket", "slow", "copy")
	want = append(want, slices.Repeat([]string{"SUMMARY"}, lanes)...)
	for i, name := range want {
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
			params := input.DispatchKeyEventParams{Type: kind, Key: "Tab", WindowsVirtualKeyCode: 9}
			must.Get(chromedp.Call(p.ctx, input.DispatchKeyEvent, params))(t)
		}
		got := value[[]string](p, `{ const e = document.activeElement; [e.id || e.dataset.preset || e.tagName, getComputedStyle(e).outlineStyle] }`)
		must.EqualOrEnd(t, got[0], name, "stop %d is", i+1)
		must.Equal(t, got[1], "solid", "%s has the focus, and the outline", name)
	}
}

// TestCalm wants the picture to stand for a while between changes where the system wants little
// motion. Time goes on.
func TestCalm(t *testing.T) {
	t.Parallel()
	count := func(calm bool) (frames, drawings int) {
		l := desktop
		l.calm = calm
		p := open(t, site, l)
		got := value[[]int](p, `new Promise((done) => {
			let frames = 0, drawings = 0;
			const context = CanvasRenderingContext2D.prototype, clear = context.clearRect;
			context.clearRect = function (...box) { drawings++; clear.apply(this, box) };
			const frame = () => { if (++frames === 20) done([frames, drawings]); else requestAnimationFrame(frame) };
			requestAnimationFrame(frame);
		})`)
		return got[0], got[1] / value[int](p, `[...document.querySelectorAll("canvas")].filter((e) => e.getBoundingClientRect().top < innerHeight + 200).length`)
	}
	frames, drawings := count(false)
	must.AtLeast(t, drawings, frames-2, "drawings in %d frames", frames)
	frames, drawings = count(true)
	must.AtMost(t, drawings, frames/2, "though little motion is wanted, drawings in %d frames", frames)
}

// The live view shows where a server says that it has one.
func TestViews(t *testing.T) {
	t.Parallel()
	t.Run("static files", func(t *testing.T) {
		t.Parallel()
		p := open(t, http.FileServerFS(playground.Files()), look{width: 820, height: 900, theme: "light", path: "/#live"})
		if !value[bool](p, `document.getElementById("views").hidden && document.getElementById("live").hidden && !document.getElementById("playground").hidden`) {
			t.Error("a live view without a server behind it")
		}
	})
	t.Run("a server", func(t *testing.T) {
		t.Parallel()
		p := open(t, behind(`{"live": true}`), desktop)
		must.Equal(t, value[bool](p, `!document.getElementById("views").hidden`), true, "no way to the live view")
		p.click(`nav a[href="#live"]`)
		p.until(`!document.getElementById("live").hidden && document.getElementById("playground").hidden`)
		p.click(`nav a[href="#playground"]`)
		p.until(`document.getElementById("live").hidden && !document.getElementById("playground").hidden`)
		p.run(`Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => { globalThis.copied = text }}})`)
		p.click("#copy")
		p.until(`globalThis.copied?.endsWith("/#playground")`) // an address without it may lead to the live view
	})
}

// A page without its engine says what to do.
func TestEngineIsMissing(t *testing.T) {
	t.Parallel()
	site := fstest.MapFS{}
	must.OK(t, fs.WalkDir(playground.Files(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == "engine.wasm" {
			return err
		}
		data, err := fs.ReadFile(playground.Files(), path)
		site[path] = &fstest.MapFile{Data: data}
		return err
	}))
	p := open(t, http.FileServerFS(site), desktop)
	must.Contains(t, p.text("#missing"), "make build", "the page says")
	must.Contains(t, p.expect(), "engine.wasm", "the console says")
}

// Without scripts the page is an article with drawings, and has no button that does nothing.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	for _, theme := range themes {
		for _, width := range widths {
			p := tabOf(t, "about:blank", look{width: width, height: 900, theme: theme})
			must.Get(chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))(t)
			p.do(chromedp.Navigate(server.URL))
			const shown = `[...document.querySelectorAll(%q)].filter((e) => e.checkVisibility()%s).length`
			must.Equal(t, value[int](p, fmt.Sprintf(shown, ".screen img", " && e.naturalWidth > 0 && e.alt")), 10, "drawings")
			must.Equal(t, value[int](p, fmt.Sprintf(shown, "button, input, select, canvas", "")), 0, "controls without a script behind them")
			fits(p)
		}
	}
}
