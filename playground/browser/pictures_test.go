package browser

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/internal/must"
)

// pictures is where make screenshots wants the pictures of the documents.
var pictures = flag.String("pictures", "", "`directory` to take screenshots into; none are taken if empty")

// TestScreenshots takes the picture of a burst at a window's edge and what became of it.
func TestScreenshots(t *testing.T) {
	p := open(t, site, desktop)
	p.play("edge", 16*time.Second)
	p.run("document.activeElement.blur()")
	for _, theme := range themes {
		p.wear(look{width: 1440, height: 1270, theme: theme})
		p.run("document.getElementById('chooser').scrollIntoView()")
		p.picture(look{width: 1440, height: 1270, theme: theme}, "playground-")
	}
	p.wear(desktop)
	p.run("playground.clock.run()")
	p.run("document.getElementById('pair').scrollIntoView()")
	p.until(`document.querySelectorAll("#pair :disabled").length === 0`)
	for _, proxy := range []string{"0", "1"} {
		p.click("[data-burst='" + proxy + "']")
		p.until(fmt.Sprintf(`document.querySelectorAll(".passes")[%s].textContent === "40 passed"`, proxy))
	}
	p.run("document.activeElement.blur()")
	p.wear(look{width: 1440, height: 800, theme: "light"})
	p.run("document.getElementById('pair').scrollIntoView()")
	p.picture(look{width: 1440, height: 800, theme: "light"}, "pair-")
	// The picture has two lanes, without their words.
	p.run(`{
		const hide = (e) => { e.hidden = true };
		document.querySelectorAll("#playground > :not(#chooser), #chooser > :not(#lanes)").forEach(hide);
		document.getElementById("chooser").style.padding = document.getElementById("chooser").style.border = 0;
		document.querySelectorAll(".top, .foot, #lanes .does, #lanes .just, #lanes dl, #lanes details").forEach(hide);
		[...document.getElementById("lanes").children].filter((_, i) => i !== 0 && i !== 4).forEach(hide);
		document.getElementById("lanes").style.gridTemplateColumns = "1fr 1fr";
		document.getElementById("lanes").style.paddingTop = "24px";
		document.documentElement.style.overflow = "hidden";
	}`)
	for _, theme := range themes {
		p.picture(look{width: 960, height: 356, theme: theme}, "two-lanes-")
	}
}

func (p *page) picture(l look, prefix string) {
	p.t.Helper()
	p.wear(l)
	// Colours fade from one theme to the other, and pictures are drawn anew for another width.
	p.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
	p.until("document.getAnimations().length === 0")
	shot := must.Get(chromedp.Run(p.ctx, chromedp.CaptureScreenshot()))(p.t)
	picture := small(p.t, shot)
	must.AtMost(p.t, len(picture), 100<<10, "bytes of %s%s", prefix, l.name())
	if *pictures == "" {
		return
	}
	must.OK(p.t, os.WriteFile(filepath.Join(*pictures, prefix+l.name()+".png"), picture, 0o644))
}

// small is a PNG with a palette of the colours that it has most.
func small(t testing.TB, shot []byte) []byte {
	t.Helper()
	from := must.Get(png.Decode(bytes.NewReader(shot)))(t)
	often := map[color.Color]int{}
	bounds := from.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			often[from.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int { return cmp.Compare(often[b], often[a]) })
	to := image.NewPaletted(bounds, colors[:min(len(colors), 128)])
	nearest := map[color.Color]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := from.At(x, y)
			index, ok := nearest[c]
			if !ok {
				index = uint8(to.Palette.Index(c))
				nearest[c] = index
			}
			to.SetColorIndex(x, y, index)
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	must.OK(t, encoder.Encode(&out, to))
	return out.Bytes()
}
