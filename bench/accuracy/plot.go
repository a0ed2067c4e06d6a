package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"weir/window"
)

// colors are Okabe and Ito's, which the colour-blind can tell apart (https://jfly.uni-koeln.de/color/).
var colors = []color.Color{
	color.RGBA{R: 0, G: 0, B: 0, A: 255},
	color.RGBA{R: 230, G: 159, B: 0, A: 255},
	color.RGBA{R: 86, G: 180, B: 233, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255},
	color.RGBA{R: 160, G: 160, B: 160, A: 255},
	color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 213, G: 94, B: 0, A: 255},
	color.RGBA{R: 204, G: 121, B: 167, A: 255},
}

var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PlusGlyph{},
	draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{},
}

const (
	plotWidth, plotHeight = 24 * vg.Centimeter, 14 * vg.Centimeter
	legendWidth           = 5 * vg.Centimeter
	margin                = 4 * vg.Millimeter
)

// sans is what the text is measured with. Readers who don't have it get one whose letters are as wide.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

// counterBuckets is the number by which the sliding window counter stands among sub-buckets.
const counterBuckets = 1

// plots draws the figures of the first study, by the name of their file.
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

// plot draws a figure by the number of sub-buckets, a line for each kind of traffic, as SVG.
func (r *results) plot(f figure) ([]byte, error) {
	p := plot.New()
	p.Title.Text = f.caption
	p.Title.TextStyle.Font = font.From(sans, 14)
	p.Title.Padding = 4 * vg.Millimeter
	p.X.Label.Text = "sub-buckets of a window (left: the sliding window counter)"
	p.Y.Label.Text = f.unit
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = font.From(sans, 12)
		axis.Tick.Label.Font = font.From(sans, 11)
		axis.Label.Padding = 2 * vg.Millimeter
	}
	legend := plot.NewLegend()
	legend.TextStyle.Font = font.From(sans, 11)
	legend.Top, legend.Left, legend.Padding = true, true, 2*vg.Millimeter
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	p.Add(grid)
	for k, kind := range r.kinds {
		var counter, buckets plotter.XYs
		for a, algorithm := range r.algorithms {
			mean := r.mean(f, a, kind.name, 0)
			point := plotter.XY{X: math.Log2(float64(algorithm.buckets)), Y: math.Log10(mean)}
			switch {
			case algorithm.weighed || mean == 0: // a logarithmic axis has no 0
			case algorithm.buckets == counterBuckets:
				counter = append(counter, point)
			default:
				buckets = append(buckets, point)
			}
		}
		line, points, err := plotter.NewLinePoints(buckets)
		if err != nil {
			return nil, err
		}
		alone, err := plotter.NewScatter(counter)
		if err != nil {
			return nil, err
		}
		style := draw.GlyphStyle{Color: colors[k%len(colors)], Shape: glyphs[k%len(glyphs)], Radius: vg.Points(3.2)}
		line.Color, line.Width = style.Color, vg.Points(1.4)
		points.GlyphStyle, alone.GlyphStyle = style, style
		p.Add(line, points, alone)
		legend.Add(kind.name, line, points)
	}
	// The axes are linear, of logarithms: the library takes the middle of a logarithmic one for its arithmetic mean.
	p.X.Min, p.X.Max = p.X.Min-0.2, p.X.Max+0.2
	p.Y.Min, p.Y.Max = p.Y.Min-0.05, p.Y.Max+0.05
	p.X.Tick.Marker = plot.ConstantTicks(r.numbers())
	p.Y.Tick.Marker = plot.ConstantTicks(percents(p.Y.Min, p.Y.Max))
	most := math.Log2(window.MaxSubBuckets)
	bound, err := plotter.NewLine(plotter.XYs{{X: most, Y: p.Y.Min}, {X: most, Y: p.Y.Max}})
	if err != nil {
		return nil, err
	}
	bound.Color, bound.Dashes = color.Gray{Y: 120}, []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(bound)
	legend.Add(fmt.Sprintf("%d, the most of a rule", window.MaxSubBuckets), bound)
	canvas := vgsvg.New(plotWidth, plotHeight)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Path())
	p.Draw(draw.Crop(all, margin, -legendWidth-2*margin, margin, -margin))
	legend.Draw(draw.Crop(all, plotWidth-legendWidth-margin, -margin, margin, -5*margin))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(svg.Bytes(), []byte("family:Liberation Sans"), []byte("family:Liberation Sans,Arial,sans-serif")), nil
}

// numbers are the ticks of the axis of sub-buckets.
func (r *results) numbers() []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "counter"}}
	for n, most := 2, slices.MaxFunc(r.algorithms, byBuckets).buckets; n <= most; n *= 2 {
		ticks = append(ticks, plot.Tick{Value: math.Log2(float64(n)), Label: fmt.Sprint(n)})
	}
	return ticks
}

func byBuckets(a, b algorithm) int { return cmp.Compare(a.buckets, b.buckets) }

// percents are the ticks of a logarithmic axis of percent that goes from 10^low to 10^high.
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
