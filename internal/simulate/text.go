package simulate

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Text writes the report for a terminal. Text from logs can't control the terminal.
func (r *Report) Text(w io.Writer) error {
	t := &text{}
	for i := range r.Logs {
		t.log(&r.Logs[i])
	}
	t.line("from       %s to %s (%v)", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), r.To.Sub(r.From).Round(time.Second))
	t.line("requests   %s, refused %s (%s)", count(r.Requests), count(r.Refused), percent(r.RefusedShare))
	t.line("           %s", r.Headline)
	for _, note := range r.Notes {
		t.line("note       %s", plain(note))
	}
	for i := range r.Rules {
		if rule := &r.Rules[i]; len(rule.Missing) == 0 {
			t.rule(rule)
		}
	}
	_, err := io.WriteString(w, t.String())
	return err
}

type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

func (t *text) log(l *LogReport) {
	format := l.Format
	if l.Gzip {
		format += ", gzip"
	}
	t.line("log        %s (%s): %s lines, %s requests", plain(l.Name), format, count(l.Lines), count(l.Requests))
	if l.WithoutRequest > 0 {
		t.line("           %s lines are about no HTTP request", count(l.WithoutRequest))
	}
	if l.OutOfOrder > 0 {
		t.line("           %s requests were out of order, by %v at most: put in order, but for %s that came more than %s late",
			count(l.OutOfOrder), time.Duration(l.MostBehindMillis)*time.Millisecond, count(l.Late), "1m")
	}
	if l.Unreadable > 0 {
		t.line("           %s lines could not be read:", count(l.Unreadable))
	}
	for _, e := range l.Examples {
		t.line("           %s:%d: %s: %q", plain(l.Name), e.Line, e.Problem, e.Excerpt)
	}
}

func (t *text) rule(r *RuleReport) {
	t.line("\nrule %s", r.Name)
	t.line("  requests   %s, %s by this rule %s (%s), refused by this or another %s (%s)", count(r.Requests), r.Does, count(r.RefusedByRule),
		percent(r.RefusedByRuleShare), count(r.Refused), percent(r.RefusedShare))
	if r.Delayed > 0 {
		t.line("  waited     %s (%s), half of them up to %v, 99 %% up to %v", count(r.Delayed), percent(r.DelayedShare),
			time.Duration(r.WaitP50Millis)*time.Millisecond, time.Duration(r.WaitP99Millis)*time.Millisecond)
	}
	t.line("  keys       %s, with refusals %s (%s)", count(r.Keys), count(r.RefusedKeys), percent(r.RefusedKeysShare))
	if len(r.Worst) > 0 {
		t.table("  refused\t of requests\t share\t key", func(row func(string, ...any)) {
			for _, k := range r.Worst {
				row("  %s\t %s\t %s\t %s", count(k.RefusedByRule), count(k.Requests), percent(k.RefusedByRuleShare), keyText(k.Values))
			}
		})
	}
	for i := range r.Limits {
		t.limit(&r.Limits[i])
	}
}

func (t *text) limit(l *LimitReport) {
	t.line("\n  limit %s, by itself", l.LimitSpec)
	if len(l.Curve) > 0 {
		t.table("  \t limit\t refused\t of requests\t of keys\t", func(row func(string, ...any)) {
			for _, p := range l.Curve {
				row("  %s\t %s\t %s\t %s\t %s\t %s", mark(p.Configured), count(p.Limit), count(p.Refused), percent(p.RefusedShare),
					percent(p.RefusedKeysShare), bar(p.RefusedShare))
			}
		})
	}
	for _, least := range l.Least {
		t.line("  least limit that refuses at most %[1]s of requests: %[2]s, at most %[1]s of keys: %[3]s", percent(least.Share), orNone(least.Limit), orNone(least.KeysLimit))
	}
	t.table("  \t algorithm\t refused\t of requests\t of keys\t", func(row func(string, ...any)) {
		for _, a := range l.Algorithms {
			row("  %s\t %s\t %s\t %s\t %s\t %s", mark(a.Configured), a.Name(), count(a.Refused), percent(a.RefusedShare),
				percent(a.RefusedKeysShare), bar(a.RefusedShare))
		}
	})
}

// table writes rows whose columns end at tabs.
func (t *text) table(head string, rows func(row func(string, ...any))) {
	w := tabwriter.NewWriter(&t.Builder, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, head)
	rows(func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) })
	_ = w.Flush() // a strings.Builder never fails
}

// String returns the limit for people.
func (s LimitSpec) String() string {
	if s.Window == "" {
		return count(s.Limit) + ", " + s.Name()
	}
	return fmt.Sprintf("%s in %s, %s", count(s.Limit), s.Window, s.Name())
}

// Name returns the algorithm with its fields besides limit and window.
func (s LimitSpec) Name() string {
	switch {
	case s.Start != "":
		return s.Algorithm + ", start " + s.Start
	case s.Precision != "":
		return s.Algorithm + ", precision " + s.Precision
	case s.Burst != 0:
		return s.Algorithm + ", burst " + count(s.Burst)
	}
	return s.Algorithm
}

func orNone(limit *uint64) string {
	if limit == nil {
		return "none"
	}
	return count(*limit)
}

func mark(configured bool) string {
	if configured {
		return "→"
	}
	return ""
}

// bar draws a share in twenty places.
func bar(share float64) string {
	const places, eighths = 20, "▏▎▍▌▋▊▉█"
	n := int(math.Round(share * places * 8))
	if share > 0 {
		n = max(n, 1)
	}
	text := strings.Repeat("█", n/8)
	if part := n % 8; part > 0 {
		text += string([]rune(eighths)[part-1])
	}
	return text
}

// count writes a number with commas between thousands.
func count[N ~int64 | ~uint64](n N) string {
	digits := strconv.FormatUint(uint64(n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// percent writes a share, with two significant digits if it is small.
func percent(share float64) string {
	switch p := share * 100; {
	case p == 0 || p == 100:
		return strconv.Itoa(int(p)) + " %"
	case p >= 10:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	case p < 0.001:
		return "< 0.001 %"
	default:
		return strconv.FormatFloat(p, 'g', 2, 64) + " %"
	}
}

// plain returns text without characters that control a terminal.
func plain(text string) string {
	quoted := strconv.Quote(text)
	if quoted[1:len(quoted)-1] == text {
		return text
	}
	return quoted
}

func keyText(values []string) string {
	if len(values) == 0 {
		return "(all requests)"
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		if quoted[i] = plain(v); v == "" {
			quoted[i] = `""`
		}
	}
	return strings.Join(quoted, ", ")
}
