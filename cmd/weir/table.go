package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"weir/internal/host"
	"weir/internal/live"
)

const (
	// tableEvery is the time between two drawings of the table, and rateOver the time that rates
	// cover.
	tableEvery = 250 * time.Millisecond
	rateOver   = 2 * time.Second
)

// table shows the work of nodes at the end of a terminal. It is drawn again and again in the same
// place, below everything else that is printed. It is safe for concurrent use.
type table struct {
	terminal *os.File
	nodes    []*host.Process

	mu      sync.Mutex
	sampler live.Sampler
	samples []live.Sample // recent, oldest first
	drawn   int           // number of lines drawn
}

// newTable returns nil if out is not a terminal.
func newTable(out io.Writer) *table {
	terminal := terminalOf(out)
	if terminal == nil {
		return nil
	}
	return &table{terminal: terminal}
}

// run draws until ctx ends.
func (t *table) run(ctx context.Context) {
	ticks := time.Tick(tableEvery)
	for {
		t.draw(t.sampler.Take(time.Now(), t.nodes))
		select {
		case <-ticks:
		case <-ctx.Done():
			t.draw(t.sampler.Take(time.Now(), t.nodes)) // the last table stays
			return
		}
	}
}

// Write prints whole lines above the table.
func (t *table) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.terminal.Write(append([]byte(t.erase()), text...))
	t.drawn = 0
	if len(t.samples) > 0 {
		t.show()
	}
	return max(0, min(n, len(text))), err
}

func (t *table) draw(s live.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.samples = append(t.samples, s)
	for len(t.samples) > 2 && s.At.Sub(t.samples[1].At) >= rateOver {
		t.samples = t.samples[1:]
	}
	t.show()
}

// erase returns the control sequence that clears the table.
func (t *table) erase() string {
	if t.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", t.drawn)
}

// show draws the last sample. The caller holds the lock.
func (t *table) show() {
	width, height, err := term.GetSize(int(t.terminal.Fd()))
	if err != nil || width < 1 || height < 2 {
		width, height = 80, 24
	}
	lines := strings.Split(strings.TrimRight(tableText(t.samples[0], t.samples[len(t.samples)-1]), "\n"), "\n")
	// A line that does not fit would take two, and lines below the screen can't be erased.
	lines = lines[:min(len(lines), height-1)]
	var b strings.Builder
	b.WriteString(t.erase())
	for _, line := range lines {
		if utf8.RuneCountInString(line) >= width {
			line = string([]rune(line)[:width-1])
		}
		b.WriteString(line + "\n")
	}
	t.drawn = len(lines)
	_, _ = io.WriteString(t.terminal, b.String()) // errors of a closed terminal don't matter
}

// tableText describes the work of nodes, and the rates since an earlier sample.
func tableText(before, now live.Sample) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	seconds := now.At.Sub(before.At).Seconds()
	fmt.Fprintln(w, "\nrule\tnode\tallowed\trefused\tallowed/s\trefused/s\t")
	for _, rule := range rulesOf(now.Nodes) {
		name := rule.Name
		if rule.Shadow {
			name += " (shadow)"
		}
		var sum, sumBefore live.Rule
		for i := range now.Nodes {
			of, then := ruleOf(now.Nodes[i].Rules, rule), ruleOf(before.Nodes[i].Rules, rule)
			line(w, name, fmt.Sprint(i), of, then, seconds)
			name = ""
			sum.Allowed, sum.Rejected = sum.Allowed+of.Allowed, sum.Rejected+of.Rejected
			sumBefore.Allowed, sumBefore.Rejected = sumBefore.Allowed+then.Allowed, sumBefore.Rejected+then.Rejected
		}
		if len(now.Nodes) > 1 {
			line(w, "", "all", sum, sumBefore, seconds)
		}
	}
	fmt.Fprintln(w, "\t\t\t\t\t\t")
	fmt.Fprintln(w, "\tnode\tpushed\twaited\talone\tlost pushes\t")
	for i, n := range now.Nodes {
		fmt.Fprintf(w, "\t%d\t%d\t%d\t%d\t%d\t\n", i, n.Pushed, n.Waited, n.Alone, n.Failed)
	}
	_ = w.Flush() // into memory
	return b.String()
}

// rulesOf returns the rules of all nodes, each once.
func rulesOf(nodes []live.Node) (all []live.Rule) {
	for i := range nodes {
		for _, rule := range nodes[i].Rules {
			if !slices.ContainsFunc(all, rule.Same) {
				all = append(all, rule)
			}
		}
	}
	return all
}

// ruleOf returns the figures of a rule at a node, which may not have it yet.
func ruleOf(rules []live.Rule, rule live.Rule) live.Rule {
	if i := slices.IndexFunc(rules, rule.Same); i >= 0 {
		return rules[i]
	}
	return live.Rule{}
}

func line(w io.Writer, name, node string, now, before live.Rule, seconds float64) {
	rate := func(n int64) string {
		if seconds <= 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f", float64(n)/seconds)
	}
	fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t\n", name, node, now.Allowed, now.Rejected, rate(now.Allowed-before.Allowed), rate(now.Rejected-before.Rejected))
}
