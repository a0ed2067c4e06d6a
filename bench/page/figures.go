package page

import (
	"fmt"
	"slices"
	"strings"
)

// Spread describes values by their median, and their 10 % and 90 % quantiles.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// SpreadOf returns the spread of values. There must be at least one.
func SpreadOf(values []float64) Spread {
	return Spread{Median: quantile(values, 0.5), Low: quantile(values, 0.1), High: quantile(values, 0.9)}
}

// quantile returns the value nearest to a quantile.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Row writes a row of a table. A row with an empty first cell begins a table.
func Row(b *strings.Builder, cells ...string) {
	if cells[0] == "" {
		b.WriteString("\n")
		cells = cells[1:]
	}
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// Thousands formats a whole number with commas.
func Thousands(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
