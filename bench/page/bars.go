package page

import (
	"bytes"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Bars is a plot of horizontal bars, the first at the top. A line over each bar shows the range of
// most of its values.
type Bars struct {
	Title, X string
	Bars     []Bar
	// Bound is the position of a dashed line.
	Bound float64
}

// Bar is a bar up to At. Its line goes from Low to High.
type Bar struct {
	Name          string
	At, Low, High float64
}

// barsMargin is the space for the title and the axis.
const (
	barHeight  = 0.6 * vg.Centimeter
	barsMargin = 3.5 * vg.Centimeter
)

// SVG draws the bars. The result is the same every time.
func (b *Bars) SVG() ([]byte, error) {
	p := plot.New()
	p.Title.Text = b.Title
	p.Title.TextStyle.Font = font.From(sans, 14)
	p.Title.Padding = 4 * vg.Millimeter
	p.X.Label.Text = b.X
	p.X.Label.TextStyle.Font = font.From(sans, 12)
	p.X.Label.Padding = 2 * vg.Millimeter
	var names []string
	var lengths plotter.Values
	var between errorBars
	most := b.Bound
	for i := len(b.Bars) - 1; i >= 0; i-- {
		bar := &b.Bars[i]
		between.XYs = append(between.XYs, plotter.XY{X: bar.At, Y: float64(len(names))})
		between.XErrors = append(between.XErrors, struct{ Low, High float64 }{bar.Low - bar.At, bar.High - bar.At})
		names, lengths = append(names, bar.Name), append(lengths, bar.At)
		most = max(most, bar.High)
	}
	bars, err := plotter.NewBarChart(lengths, barHeight/2)
	if err != nil {
		return nil, err
	}
	bars.Horizontal, bars.Color, bars.LineStyle.Width = true, colors[2], 0
	lines, err := plotter.NewXErrorBars(&between)
	if err != nil {
		return nil, err
	}
	p.X.Min, p.X.Max = 0, math.Ceil(most)
	bound, err := plotter.NewLine(plotter.XYs{{X: b.Bound, Y: -1}, {X: b.Bound, Y: float64(len(names))}})
	if err != nil {
		return nil, err
	}
	bound.Color, bound.Dashes = color.Gray{Y: 120}, []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(bars, lines, bound)
	p.NominalY(names...)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Tick.Label.Font = font.From(sans, 11)
	}
	canvas := vgsvg.New(plotWidth, vg.Length(len(names))*barHeight+barsMargin)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Path())
	p.Draw(draw.Crop(all, margin, -2*margin, margin, -margin))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	return withFamilies(svg.Bytes()), nil
}

// errorBars are points with lines.
type errorBars struct {
	plotter.XYs
	plotter.XErrors
}
