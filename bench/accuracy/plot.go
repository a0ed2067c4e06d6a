package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"weir/bench/page"
	"weir/window"
)

// counterBuckets is the number of sub-buckets at which plots show the sliding window counter.
const counterBuckets = 1

// plots draws the figures of the first study, by file name.
func (r report) plots() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, f := range figures {
		svg, err := r[0].plot(f)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", f.name, err)
		}
		files[f.name+".svg"] = svg
	}
	return files, nil
}

// plot draws a figure over the number of sub-buckets as SVG, with a line for each kind of traffic.
func (r *results) plot(f figure) ([]byte, error) {
	chart := page.Chart{
		Title:  f.caption,
		X:      "sub-buckets of a window (left: the sliding window counter)",
		Y:      f.unit,
		PadX:   0.2,
		PadY:   0.05,
		XTicks: func(_, _ float64) []plot.Tick { return r.numbers() },
		YTicks: percents,
		Bounds: []page.Bound{{Name: fmt.Sprintf("%d, the most of a rule", window.MaxSubBuckets), At: math.Log2(window.MaxSubBuckets)}},
	}
	for _, kind := range r.kinds {
		line := page.Line{Name: kind.name}
		for a, algorithm := range r.algorithms {
			mean := r.mean(f, a, kind.name, 0)
			point := plotter.XY{X: math.Log2(float64(algorithm.buckets)), Y: math.Log10(mean)}
			switch {
			case algorithm.weighed || mean == 0: // a logarithmic axis has no 0
			case algorithm.buckets == counterBuckets:
				line.Apart = append(line.Apart, point)
			default:
				line.Points = append(line.Points, point)
			}
		}
		chart.Lines = append(chart.Lines, line)
	}
	return chart.SVG()
}

// numbers returns the ticks of the axis of sub-buckets.
func (r *results) numbers() []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "counter"}}
	for n, most := 2, slices.MaxFunc(r.algorithms, byBuckets).buckets; n <= most; n *= 2 {
		ticks = append(ticks, plot.Tick{Value: math.Log2(float64(n)), Label: fmt.Sprint(n)})
	}
	return ticks
}

func byBuckets(a, b algorithm) int { return cmp.Compare(a.buckets, b.buckets) }

// percents returns the ticks of a logarithmic axis of percent from 10^low to 10^high.
func percents(low, high float64) []plot.Tick {
	steps := []float64{1, 2, 5}
	if high-low < 0.5 {
		steps = []float64{1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8}
	}
	var ticks []plot.Tick
	for decade := math.Floor(low); decade <= high; decade++ {
		for _, step := range steps {
			if at := decade + math.Log10(step); low <= at && at <= high {
				ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprintf("%.3g", math.Pow(10, at))})
			}
		}
	}
	return ticks
}
