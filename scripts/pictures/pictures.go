// Command pictures draws the pictures of the algorithms in docs/how-it-counts.md and, where no scripts run, in the
// playground: the decisions of each
// on the same requests, and README.md's moving picture. Package window makes the decisions. With -check the command draws nothing,
// and fails if a picture is out of date.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"weir/playground"
	"weir/window"
)

const (
	limit = 6
	width = 30 * time.Second
	span  = 3 * width
)

// start begins a window of the clock.
var start = time.Unix(0, 0).Add(1e6 * width)

// Picture is the picture of an algorithm.
type Picture struct {
	// Name is the file's name without its ending.
	Name string
	// Limit makes the decisions.
	Limit window.Limit
}

// Pictures are all pictures, in the page's order.
var Pictures = []Picture{
	{"fixed-window", of(window.FixedWindow, 0, 0)},
	{"first-hit", of(window.FirstHitWindow, 0, 0)},
	{"sliding-window", of(window.SlidingWindow, 0, 0)},
	{"sub-buckets", of(window.SlidingBuckets, int64(width/6), 0)},
	{"sliding-log", of(window.SlidingBuckets, window.LogPrecision, 0)},
	{"token-bucket", of(window.TokenBucket, 0, limit)},
}

// of returns a limit of a kind.
func of(kind window.Kind, precision int64, burst uint64) window.Limit {
	return window.Limit{Shape: window.Shape{Kind: kind, Width: int64(width), Precision: precision}, Max: limit, Burst: burst}
}

// requests returns the times of the requests, after start: a burst before the end of a window of
// the clock, another burst after it, and then a steady few.
func requests() (at []time.Duration) {
	for i := range 10 {
		at = append(at, 24*time.Second+time.Duration(i)*500*time.Millisecond)
	}
	for i := range 6 {
		at = append(at, 31*time.Second+time.Duration(i)*500*time.Millisecond)
	}
	for i := range 6 {
		at = append(at, 42*time.Second+time.Duration(i)*8*time.Second)
	}
	return at
}

// decision is the decision on a request.
type decision struct {
	at      time.Duration
	allowed bool
}

// Draw returns the picture as SVG.
func (p Picture) Draw() []byte {
	const (
		left, top, wide, high = 44, 20, 640, 100
		marks                 = top + high + 22
		step                  = 250 * time.Millisecond
	)
	x := func(t time.Duration) float64 { return left + wide*t.Seconds()/span.Seconds() }
	y := func(used uint64) float64 { return top + high - high*float64(used)/limit }
	var decisions []decision
	var line strings.Builder
	var state window.State
	used, pending := uint64(0), requests()
	for t := time.Duration(0); t <= span; t += step {
		p.Limit.Advance(&state, start.Add(t).UnixNano())
		for ; len(pending) > 0 && pending[0] <= t; pending = pending[1:] {
			allowed := p.Limit.Allows(&state, 1)
			if allowed {
				p.Limit.Count(&state, 1)
			}
			decisions = append(decisions, decision{pending[0], allowed})
		}
		now := limit - p.Limit.Remaining(&state)
		if t == 0 {
			fmt.Fprintf(&line, "M%.1f %.1f", x(t), y(now))
		} else if now != used || t == span {
			fmt.Fprintf(&line, "H%.1fV%.1f", x(t), y(now))
		}
		used = now
	}
	passed := 0
	for _, d := range decisions {
		if d.allowed {
			passed++
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="11">`+"\n",
		left+wide+16, marks+34)
	fmt.Fprintf(&b, "<title>%s: %d of %d requests pass</title>\n", p.Name, passed, len(decisions))
	fmt.Fprintf(&b, "<rect width=\"100%%\" height=\"100%%\" fill=\"{card}\"/>\n")
	for t := time.Duration(0); t <= span; t += width {
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="{rule}"/><text x="%.1f" y="%d" text-anchor="middle">%.0f s</text>`+"\n",
			x(t), top-8, marks+8, x(t), marks+26, t.Seconds())
	}
	for _, hits := range []uint64{0, limit} {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="{rule}" stroke-dasharray="4"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n",
			left, y(hits), left+wide, left-8, y(hits)+4, hits)
	}
	fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="{passed}" stroke-width="2"/>`+"\n", &line)
	for _, d := range decisions {
		fill, ink := "{card}", "{refused}"
		if d.allowed {
			fill, ink = "{passed}", "{passed}"
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="3" fill="%s" stroke="%s"/>`+"\n", x(d.at), marks, fill, ink)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func main() {
	check := flag.Bool("check", false, "fail if a picture is out of date")
	dir := flag.String("dir", "playground/site/pictures", "`folder` of the pictures")
	flag.Parse()
	drawn := map[string][]byte{"two-proxies": twoProxies()}
	for _, p := range Pictures {
		drawn[p.Name] = p.Draw()
	}
	for name, picture := range drawn {
		if err := write(filepath.Join(*dir, name+".svg"), colored(picture), *check); err != nil {
			fmt.Fprintln(os.Stderr, "pictures:", err)
			os.Exit(1)
		}
	}
}

// colored replaces {name} by the playground's colour of that name, as it is on light paper.
func colored(picture []byte) []byte {
	for _, color := range regexp.MustCompile(`--([a-z-]+): light-dark\((#[0-9a-f]+),`).FindAllSubmatch([]byte(playground.Tokens()), -1) {
		picture = bytes.ReplaceAll(picture, fmt.Appendf(nil, "{%s}", color[1]), color[2])
	}
	return picture
}

func write(file string, want []byte, check bool) error {
	if !check {
		return os.WriteFile(file, want, 0o644)
	}
	got, err := os.ReadFile(file)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s is out of date: run go run ./scripts/pictures", file)
	}
	return err
}
