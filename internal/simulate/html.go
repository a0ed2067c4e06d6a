package simulate

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"

	"weir/config"
	"weir/playground"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	ownStyle string
	// The page looks as the playground does.
	pageStyle = template.CSS(playground.Tokens() + ownStyle)
)

// pagePolicy allows the page its own style and nothing else. Markup in a log could neither run a
// script, nor change the style, nor reach a server.
func pagePolicy() string {
	hash := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; font-src data:; base-uri 'none'; form-action 'none'"
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": count[uint64], "lines": count[int64], "percent": percent, "plot": plotCurve, "line": plotTime, "key": keyText, "plain": plain,
	"time":  func(t time.Time) string { return t.Format(time.RFC3339) },
	"style": func() template.CSS { return pageStyle }, "policy": pagePolicy,
	"least": orNone, "millis": func(n int64) string { return (time.Duration(n) * time.Millisecond).String() },
	"most": mostRefused, "width": func(part, whole uint64) string { return decimal(100 * share(part, whole)) },
}).Parse(pageText))

// HTML writes the report as a single page that loads nothing: no script, no picture, and its font is in it. It
// escapes all text from logs.
func (r *Report) HTML(w io.Writer) error { return page.Execute(w, r) }

// The area of a plot, and the plot inside.
const (
	plotWidth, plotHeight     = 640, 320
	plotLeft, plotRight       = 80, 28
	plotTop, plotBottom       = 16, 60
	plotInnerW                = plotWidth - plotLeft - plotRight
	plotInnerH                = plotHeight - plotTop - plotBottom
	ticksY                    = 4
	ticksX                    = 6 // at most
	leastShare, wholeOfShares = 0.001, 1.0
)

// plot is a curve of shares against limits. Limits grow by factors from left to right.
type plot struct {
	Width, Height            int
	Left, Right, Top, Bottom int // of the area inside the axes
	// Labels is the place where the labels of shares end. Limits is the place of the limits'
	// labels, and Marks that of the configured limit's label.
	Labels, Limits, Marks int
	Requests, Keys        string
	Points                []plotPoint
	X, Y                  []plotTick
}

type plotPoint struct {
	X, Requests, Keys, Limit string
	Configured               bool
	Tip                      string
}

type plotTick struct{ At, Text string }

func plotCurve(points []Outcome) *plot {
	if len(points) == 0 {
		return nil
	}
	p := &plot{
		Width: plotWidth, Height: plotHeight, Left: plotLeft, Right: plotWidth - plotRight, Top: plotTop, Bottom: plotHeight - plotBottom,
		Labels: plotLeft - 8, Limits: plotHeight - 36, Marks: plotHeight - 10,
	}
	most := leastShare
	for i := range points {
		most = max(most, points[i].RefusedShare, points[i].RefusedKeysShare)
	}
	most = ceiling(most)
	least, span := math.Log(float64(points[0].Limit)), 1.0
	if last := math.Log(float64(points[len(points)-1].Limit)); last > least {
		span = last - least
	}
	x := func(limit uint64) string {
		return decimal(plotLeft + plotInnerW*(math.Log(float64(limit))-least)/span)
	}
	y := func(share float64) string { return decimal(plotTop + plotInnerH*(1-share/most)) }
	var requests, keys strings.Builder
	every := (len(points) + ticksX - 1) / ticksX
	for i, o := range points {
		at := plotPoint{
			X: x(o.Limit), Requests: y(o.RefusedShare), Keys: y(o.RefusedKeysShare), Limit: count(o.Limit), Configured: o.Configured,
			Tip: fmt.Sprintf("limit %s: %s of requests, %s of keys", count(o.Limit), percent(o.RefusedShare), percent(o.RefusedKeysShare)),
		}
		fmt.Fprintf(&requests, "%s,%s ", at.X, at.Requests)
		fmt.Fprintf(&keys, "%s,%s ", at.X, at.Keys)
		p.Points = append(p.Points, at)
		if i%every == 0 {
			p.X = append(p.X, plotTick{at.X, at.Limit})
		}
	}
	p.Requests, p.Keys = requests.String(), keys.String()
	for i := range ticksY + 1 {
		share := most * float64(i) / ticksY
		p.Y = append(p.Y, plotTick{y(share), percent(share)})
	}
	return p
}

// timePlot shows requests and refusals over time.
type timePlot struct {
	Width, Height, Left, Right, Labels, Limits int
	// Step is the duration of a bar, and Told describes the plot.
	Step, Told, First, Last string
	Y                       []plotTick
	Bars                    []timeBar
}

type timeBar struct{ X, Y, Width, Height, RefusedY, RefusedHeight, Tip string }

func plotTime(steps []Step) *timePlot {
	if len(steps) == 0 {
		return nil
	}
	const format = "2006-01-02 15:04:05"
	end := func(s *Step) time.Time { return s.From.Add(time.Duration(s.Seconds * float64(time.Second))) }
	width := config.Duration(steps[0].Seconds * float64(config.Second)).String()
	p := &timePlot{
		Width: plotWidth, Height: plotHeight / 2, Left: plotLeft, Right: plotWidth - plotRight, Labels: plotLeft - 8, Limits: plotHeight/2 - 8,
		Step: width, First: steps[0].From.Format(format), Last: end(&steps[len(steps)-1]).Format(format),
	}
	bottom := float64(plotHeight/2 - 30)
	high, worst := uint64(1), &steps[0]
	for i := range steps {
		high = max(high, steps[i].Requests)
		if steps[i].Refused > worst.Refused {
			worst = &steps[i]
		}
	}
	p.Told = "No request is refused"
	if worst.Refused > 0 {
		p.Told = fmt.Sprintf("Most requests are refused in the %s from %s on: %s of %s", width, worst.From.Format(format), count(worst.Refused), count(worst.Requests))
	}
	height := func(n uint64) float64 { return (bottom - plotTop) * float64(n) / float64(high) }
	for _, n := range []uint64{0, high} {
		p.Y = append(p.Y, plotTick{decimal(bottom - height(n)), count(n)})
	}
	each := float64(plotInnerW) / float64(len(steps))
	for i := range steps {
		s := &steps[i]
		p.Bars = append(p.Bars, timeBar{
			X: decimal(plotLeft + float64(i)*each), Width: decimal(max(1, each-1)),
			Y: decimal(bottom - height(s.Requests)), Height: decimal(height(s.Requests)),
			RefusedY: decimal(bottom - height(s.Refused)), RefusedHeight: decimal(height(s.Refused)),
			Tip: fmt.Sprintf("%s: %s of %s refused", s.From.Format(format), count(s.Refused), count(s.Requests)),
		})
	}
	return p
}

// ceiling returns the least share from share up that four ticks divide well.
func ceiling(share float64) float64 {
	for top := leastShare; top < wholeOfShares; top *= 10 {
		for _, times := range [...]float64{1, 2, 3, 4, 6, 8} {
			if top*times >= share {
				return min(top*times, wholeOfShares)
			}
		}
	}
	return wholeOfShares
}

func mostRefused(outcomes []Outcome) (n uint64) {
	for i := range outcomes {
		n = max(n, outcomes[i].Refused)
	}
	return n
}

func decimal(n float64) string { return fmt.Sprintf("%.2f", n) }
