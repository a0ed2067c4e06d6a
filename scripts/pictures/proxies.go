package main

import (
	"bytes"
	"fmt"
	"time"

	"weir/window"
)

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
