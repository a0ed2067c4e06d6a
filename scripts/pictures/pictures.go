// Command pictures draws the pictures of the algorithms in docs/how-it-counts.md and, where no scripts run, in the
// playground: the decisions of each
// on the same requests, and README.md's moving picture. The playground's lanes make the decisions. With -check the command draws nothing,
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
	"weir/playground/lane"
	"weir/window"
)

const (
	limit = 6
	width = 30 * time.Second
	span  = 3 * width
	lasts = 10 * time.Second // a request that holds a place
)

// start begins a window of the clock.
var start = time.Unix(0, 0).Add(1e6 * width)

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

// laneOf returns a lane of the playground without hits.
func laneOf(kind lane.Kind) *lane.Lane {
	l, fault := lane.New(kind, limit, int64(width), 6)
	if fault != window.Sound {
		fmt.Fprintln(os.Stderr, "pictures:", kind.Name, "has no such limit:", fault)
		os.Exit(1)
	}
	return l
}

const left, wide = 44, 640

func x(t time.Duration) float64 { return left + wide*t.Seconds()/span.Seconds() }

// begin begins a picture with an axis of time, and a title.
func begin(b *bytes.Buffer, height int, title string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="12">`+"\n", left+wide+16, height)
	fmt.Fprintf(b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"{card}\"/>\n", title)
	for t := time.Duration(0); t <= span; t += width {
		fmt.Fprintf(b, `<path d="M%.1f 12V%d" stroke="{rule}"/><text x="%.1f" y="%d" text-anchor="middle">%.0f s</text>`+"\n",
			x(t), height-26, x(t), height-8, t.Seconds())
	}
}

func mark(b *bytes.Buffer, d decision, y int) {
	fill, ink := "{card}", "{refused}"
	if d.allowed {
		fill, ink = "{passed}", "{passed}"
	}
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%d" r="3" fill="%s" stroke="%s"/>`+"\n", x(d.at), y, fill, ink)
}

// threeClients returns a picture of clients that a limit treats alike, each by its own counter.
func threeClients(kind lane.Kind) []byte {
	var b bytes.Buffer
	begin(&b, 156, "a steady client, one with bursts, one that never stops")
	for i, name := range []string{"steady", "with bursts", "never stops"} {
		counter, y := laneOf(kind), 44+32*i
		at := requests()[:10]
		if i != 1 {
			at = nil
			for t := 3 * time.Second; t < span; t += time.Duration(9-4*i) * time.Second {
				at = append(at, t)
			}
		}
		passed := 0
		for _, t := range at {
			d := decision{t, counter.Hit(start.Add(t).UnixNano()).Allowed}
			mark(&b, d, y)
			if d.allowed {
				passed++
			}
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s: %d of %d pass</text>`+"\n", left+6, y-10, name, passed, len(at))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// draw returns the picture of a lane as SVG. Where requests hold places, each does for a time; where they wait, a
// small mark below shows when one goes on.
func draw(kind lane.Kind) []byte {
	const (
		top, high = 20, 100
		marks     = top + high + 22
		step      = 250 * time.Millisecond
	)
	y := func(used uint64) float64 { return top + high - high*float64(used)/limit }
	var decisions []decision
	var line, waits strings.Builder
	counter, view := laneOf(kind), lane.View{}
	used, pending := uint64(0), requests()
	var ends []time.Duration
	for t := time.Duration(0); t <= span; t += step {
		for ; kind.Holds && len(ends) > 0 && ends[0] <= t; ends = ends[1:] {
			counter.Release(start.Add(t).UnixNano())
		}
		for ; len(pending) > 0 && pending[0] <= t; pending = pending[1:] {
			outcome := counter.Hit(start.Add(pending[0]).UnixNano())
			decisions = append(decisions, decision{pending[0], outcome.Allowed})
			if outcome.Allowed {
				ends = append(ends, pending[0]+lasts)
			}
			if outcome.Wait > 0 {
				fmt.Fprintf(&waits, `<path d="M%.1f %dv6" stroke="{passed}"/>`+"\n", x(pending[0]+time.Duration(outcome.Wait)), marks+5)
			}
		}
		counter.Look(start.Add(t).UnixNano(), &view)
		now := view.Quota - view.Remaining
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
	begin(&b, marks+34, fmt.Sprintf("%s: %d of %d requests pass", kind.Name, passed, len(decisions)))
	for _, hits := range []uint64{0, limit} {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="{rule}" stroke-dasharray="4"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n",
			left, y(hits), left+wide, left-8, y(hits)+4, hits)
	}
	fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="{passed}" stroke-width="2"/>`+"\n", &line)
	for _, d := range decisions {
		mark(&b, d, marks)
	}
	b.WriteString(waits.String())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func main() {
	check := flag.Bool("check", false, "fail if a picture is out of date")
	dir := flag.String("dir", "playground/site/pictures", "`folder` of the pictures")
	flag.Parse()
	drawn := map[string][]byte{"two-proxies": twoProxies(), "three-clients": threeClients(lane.Kinds[0])}
	for _, kind := range lane.Kinds {
		drawn[kind.Name] = draw(kind)
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

// twoProxies returns a moving picture: a client that asks two proxies in turn, where each has a counter
// of its own, and where both share one. A curtain that moves to the right shows what happens. Where
// nothing moves, the whole is seen.
func twoProxies() []byte {
	const (
		most, requests = 10, 24
		each           = 250 * time.Millisecond
		panel, wide    = 360, 290
		left, top      = 34, 44
		high, between  = 96, 5
	)
	log := window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: int64(time.Minute), Precision: window.LogPrecision}, Max: most}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d 250" role="img" font-family="sans-serif" font-size="12">`+"\n", 2*panel)
	b.WriteString(`<style>.curtain{transform:translateX(300px);animation:c 8s linear infinite}@keyframes c{0%{transform:none}75%,100%{transform:translateX(300px)}}` +
		"@media(prefers-reduced-motion:reduce){.curtain{animation:none}}</style>\n" +
		`<rect width="100%" height="100%" fill="{card}"/>` + "\n")
	for i, title := range []string{"Each proxy alone", "With Weir"} {
		counters := make([]window.State, 2-i)
		passed := 0
		y := func(n int) int { return top + high - between*n }
		line := fmt.Sprintf("M%d %d", left, y(0))
		var marks bytes.Buffer
		for r := range requests {
			now := start.Add(time.Duration(r) * each).UnixNano()
			counter, x := &counters[r%len(counters)], left+wide*(r+1)/(requests+1)
			log.Advance(counter, now)
			row, up, fill := top+high+32+34*(r%2), 0, "{refused}"
			if log.Allows(counter, 1) {
				log.Count(counter, 1)
				passed++
				up, fill = -10, "{passed}"
			}
			line += fmt.Sprintf("H%dV%d", x, y(passed))
			fmt.Fprintf(&marks, `<rect x="%d" y="%d" width="6" height="10" fill="%s"/>`+"\n", x-3, row+up, fill)
		}
		ink := "{passed}"
		if passed > most {
			ink = "{refused}"
		}
		fmt.Fprintf(&b, `<g transform="translate(%d)"><text x="%d" y="24" font-weight="bold" font-size="14">%s: %d of %d requests pass</text>`+"\n",
			panel*i, left, title, passed, requests)
		fmt.Fprintf(&b, `<path d="M%d %dh%d" stroke="{field}" stroke-dasharray="4"/><text x="%d" y="%d" text-anchor="end">%d</text><path d="M%d %dh%d" stroke="{rule}"/>`+"\n",
			left, y(most), wide, left-6, y(most)+4, most, left, y(0), wide)
		fmt.Fprintf(&b, `<path d="%sH%d" fill="none" stroke="%s" stroke-width="2.5"/>`+"\n%s", line, left+wide, ink, &marks)
		for proxy := range 2 {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%c</text><path d="M%d %dh%d" stroke="{rule}"/>`+"\n",
				left-6, top+high+36+34*proxy, 'A'+proxy, left, top+high+32+34*proxy, wide)
		}
		fmt.Fprintf(&b, `<g class="curtain"><rect x="%d" y="32" width="%d" height="190" fill="{card}"/><path d="M%d 32v190" stroke="{field}"/></g>`+"\n", left, wide+10, left)
		fmt.Fprintf(&b, `<rect x="%d" y="31" width="%d" height="192" fill="{card}"/></g>`+"\n", left+wide+1, panel-left-wide-1)
	}
	b.WriteString(`<text x="34" y="240" fill="{passed}">up: passes</text><text x="104" y="240" fill="{refused}">down: refused</text>` +
		`<text x="686" y="240" text-anchor="end">proxies A and B, a limit of 10 a minute</text></svg>` + "\n")
	return b.Bytes()
}
