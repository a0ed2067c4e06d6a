package page

import (
	"bytes"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// colors are the colours of Okabe and Ito, which colour-blind readers can distinguish
// (https://jfly.uni-koeln.de/color/).
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

// sans is the font in which text is measured. Readers without it get a font with letters of the
// same width.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

// Chart is a plot of lines over linear axes. Values for a logarithmic axis must be given as
// logarithms, with fitting ticks: the library mistakes the arithmetic mean for the middle of a
// logarithmic axis.
type Chart struct {
	Title, X, Y string
	Lines       []Line
	// Bounds are drawn dashed.
	Bounds []Bound
	// PadX and PadY are added to both ends of an axis.
	PadX, PadY float64
	// XTicks and YTicks return the ticks of an axis from low to high; nil means the library's
	// ticks.
	XTicks, YTicks func(low, high float64) []plot.Tick
}

// Line is a line through points, with its name in the legend.
type Line struct {
	Name   string
	Points plotter.XYs
	// Apart are points that belong to the line without being joined to it.
	Apart plotter.XYs
}

// Bound is a straight line through the whole chart: at a Y if it is horizontal, else at an X.
type Bound struct {
	Name       string
	At         float64
	Horizontal bool
}

// SVG draws the chart. The result is the same every time.
func (c *Chart) SVG() ([]byte, error) {
	p := plot.New()
	p.Title.Text = c.Title
	p.Title.TextStyle.Font = font.From(sans, 14)
	p.Title.Padding = 4 * vg.Millimeter
	p.X.Label.Text = c.X
	p.Y.Label.Text = c.Y
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
	for i, l := range c.Lines {
		line, points, err := plotter.NewLinePoints(l.Points)
		if err != nil {
			return nil, err
		}
		style := draw.GlyphStyle{Color: colors[i%len(colors)], Shape: glyphs[i%len(glyphs)], Radius: vg.Points(3.2)}
		line.Color, line.Width, points.GlyphStyle = style.Color, vg.Points(1.4), style
		p.Add(line, points)
		if l.Apart != nil {
			apart, err := plotter.NewScatter(l.Apart)
			if err != nil {
				return nil, err
			}
			apart.GlyphStyle = style
			p.Add(apart)
		}
		legend.Add(l.Name, line, points)
	}
	p.X.Min, p.X.Max = p.X.Min-c.PadX, p.X.Max+c.PadX
	p.Y.Min, p.Y.Max = p.Y.Min-c.PadY, p.Y.Max+c.PadY
	if c.XTicks != nil {
		p.X.Tick.Marker = plot.ConstantTicks(c.XTicks(p.X.Min, p.X.Max))
	}
	if c.YTicks != nil {
		p.Y.Tick.Marker = plot.ConstantTicks(c.YTicks(p.Y.Min, p.Y.Max))
	}
	for _, b := range c.Bounds {
		ends := plotter.XYs{{X: b.At, Y: p.Y.Min}, {X: b.At, Y: p.Y.Max}}
		if b.Horizontal {
			ends = plotter.XYs{{X: p.X.Min, Y: b.At}, {X: p.X.Max, Y: b.At}}
		}
		bound, err := plotter.NewLine(ends)
		if err != nil {
			return nil, err
		}
		bound.Color, bound.Dashes = color.Gray{Y: 120}, []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(bound)
		legend.Add(b.Name, bound)
	}
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
	return withFamilies(svg.Bytes()), nil
}

// withFamilies adds font families for readers without sans.
func withFamilies(svg []byte) []byte {
	return bytes.ReplaceAll(svg, []byte("family:Liberation Sans"), []byte("family:Liberation Sans,Arial,sans-serif"))
}
