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

	"weir/playground"
)

// pictures is where TestScreenshots leaves what it takes: make screenshots says.
var pictures = flag.String("pictures", "", "`directory` for screenshots; a temporary one if empty")

// TestScreenshots takes the pictures of the documents: a client that never stops, seen by both themes
// at three widths.
func TestScreenshots(t *testing.T) {
	dir := *pictures
	if dir == "" {
		dir = t.TempDir()
	}
	for _, theme := range themes {
		for _, width := range widths {
			name := fmt.Sprintf("playground-%s-%d.png", theme, width)
			t.Run(name, func(t *testing.T) {
				height := int64(900)
				if width < 500 {
					height = 844
				}
				p := open(t, playground.Handler(), look{width: width, height: height, theme: theme})
				p.still()
				p.run(`document.querySelector("[data-preset=never]").click(); document.getElementById("pause").click()`)
				p.pass(26400 * time.Millisecond)
				shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), small(t, shot), 0o644); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// small is a PNG with a palette of the colours that it has most.
func small(t *testing.T, shot []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
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
	if err := encoder.Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
