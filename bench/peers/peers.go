// Command peers measures what a request costs in Envoy, and Weir beside what people would pick instead: the limiters of nginx,
// HAProxy and Envoy, rate limit services, Go libraries, and scripts on Redis. Every limiter has to refuse first, and then all
// are measured in turns. It prints tables, and updates its parts of bench/README.md and bench/comparison.md. It installs the
// peers that this machine lacks.
//
// Run it at the top of the repository, after make build native, on Linux with at least two processors.
package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bench/page"
	"weir/bench/site"
	"weir/internal/envoytest"
)

// options are the flags of the command line, and what -quick changes beside them.
type options struct {
	site.Options
	requests, rounds, processes int
	only                        string
	quick                       bool
	// keys is the number of users where there are many. settle is how long a limiter gets to do what it has put off.
	keys   int
	settle time.Duration
	// processor is for the proxies, once this process has left it to them.
	processor string
}

func main() {
	o := options{
		Options: site.Options{
			Dir: "bench", Plugin: filepath.Join("dist", "weir.wasm"), Native: filepath.Join("dist", "libweir.so"),
			Weir: filepath.Join("dist", "weir"), RateLimit: filepath.Join("dist", "ratelimit", "service_cmd"),
		},
		keys: 100_000, settle: 1500 * time.Millisecond,
	}
	flag.IntVar(&o.requests, "requests", 8000, "how many requests are measured at a time")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each process is measured")
	flag.IntVar(&o.processes, "processes", 3, "how many processes of each limiter are measured, one after the other")
	flag.StringVar(&o.only, "only", "", "measure only the limiters whose `names`, such as proxies/nginx, match this regular expression and what they are compared with; write only tables that are whole")
	flag.BoolVar(&o.quick, "quick", false, "measure so little that the figures say nothing, and write nothing")
	page.Main("peers", func(ctx context.Context) error { return run(ctx, &o) })
}

func run(ctx context.Context, o *options) error {
	if o.quick {
		o.hurry()
	}
	if min(o.rounds, o.processes) < 1 || o.requests < 1000 && !o.quick {
		return errors.New("want -rounds and -processes of 1 or more, and -requests of 1,000 or more")
	}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	if err := install(ctx, chosen); err != nil {
		return err
	}
	text, written, beside := "", map[string]string{}, map[string]string{}
	for i, g := range slices.Backward(chosen) { // what pins this process to a processor comes last
		if len(g.contenders) == 0 {
			continue
		}
		r, err := measure(ctx, o, g)
		if err != nil {
			return err
		}
		table := fmt.Sprintf("\n%s; %s; %d processes of each, %d rounds of %s requests.\n%s", strings.Join(g.versions(o), ", "), site.Machine(), o.processes, o.rounds, page.Thousands(o.requests), r)
		if text = table + text; !o.quick && len(g.contenders) == len(groups[i].contenders) {
			if written[g.name] = table; len(g.quotes) > 0 {
				beside[g.name] = r.beside()
			}
		}
	}
	fmt.Print(text)
	if len(written) == 0 {
		return nil
	}
	return errors.Join(page.Keep(filepath.Join(o.Dir, "README.md"), written), page.Keep(filepath.Join(o.Dir, "comparison.md"), beside))
}

// hurry measures little.
func (o *options) hurry() { o.requests, o.rounds, o.processes, o.keys, o.settle = 200, 1, 1, 500, 0 }

// install has a script install all peers, unless only those in this program are measured.
func install(ctx context.Context, chosen []group) error {
	if !slices.ContainsFunc(chosen, func(g group) bool { return g.outside && len(g.contenders) > 0 }) {
		return nil
	}
	c := exec.CommandContext(ctx, filepath.Join("scripts", "test-dependencies"), "bench")
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("scripts/test-dependencies bench: %w: it says how to get what is missing", err)
	}
	return nil
}

// group is what is measured alike.
type group struct {
	name, title string
	// reference is the heading of ratios.
	reference string
	// outside says that other programs take part.
	outside bool
	metrics []metric
	// tables are the titles of further tables, by the first of their metrics.
	tables     map[int]string
	contenders []contender
	// quotes are what bench/comparison.md has of it.
	quotes []quotes
	// versions tells which programs are measured.
	versions func(o *options) []string
	// open starts what all need; nil if that is nothing.
	open func(ctx context.Context, b *bench) error
}

// metric is a figure of each round.
type metric struct {
	title, unit string
	digits      int
	// shown says what the table has of it: the value (v), how much more it is than that of what the contender is
	// compared with (m), and their ratio (r); or the value with its mean (a), of what few rounds have.
	shown string
}

// contender is a limiter, or what limiters are compared with.
type contender struct {
	name, title string
	// than is the name of what it is compared with; empty if that is nothing.
	than string
	// bare says that it refuses nothing.
	bare bool
	// start starts it with a limit a minute for each user. It ends with b.
	start func(ctx context.Context, b *bench, limit int) (*subject, error)
}

// subject is a running contender.
type subject struct {
	// allow asks for a hit of a user.
	allow func(ctx context.Context, user string) (bool, error)
	// round returns a value of each metric; NaN of those that it has not.
	round func(ctx context.Context) ([]float64, error)
}

// bench is where a group is measured.
type bench struct {
	testing.TB
	*options
	site *site.Site
}

// results has a group's values: of each contender, in each round, of each metric.
type results struct {
	group
	values map[string][][]float64
}

// measure has all contenders of a group refuse, and then measures them in turns.
func measure(ctx context.Context, o *options, g group) (*results, error) {
	all := &results{g, map[string][][]float64{}}
	host := func(do func(b *bench) error) error {
		return page.Hosted(func(t testing.TB) error {
			b := &bench{TB: t, options: o}
			if g.open != nil {
				if err := g.open(ctx, b); err != nil {
					return err
				}
			}
			return do(b)
		})
	}
	for _, c := range g.contenders {
		if c.bare {
			continue
		}
		if err := host(func(b *bench) error { return refuses(ctx, b, c) }); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", g.name, c.name, err)
		}
	}
	for process := range o.processes {
		fmt.Fprintf(os.Stderr, "%s: processes %d of %d\n", g.name, process+1, o.processes)
		if err := host(func(b *bench) error { return all.measure(ctx, b) }); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// refuses returns an error unless a contender refuses a user who has used up the limit, and only that user.
func refuses(ctx context.Context, b *bench, c contender) error {
	const limit, most = 3, 20 // a burst of the limit may come on top, and a turn of the minute
	s, err := c.start(ctx, b, limit)
	if err != nil {
		return err
	}
	for i := range most {
		switch allowed, err := s.allow(ctx, "user-a"); {
		case err != nil:
			return err
		case !allowed && i < limit:
			return fmt.Errorf("request %d of a limit of %d is refused", i+1, limit)
		case !allowed:
			if allowed, err = s.allow(ctx, "user-b"); err != nil || !allowed {
				return errors.Join(errors.New("another user is refused"), err)
			}
			return nil
		}
	}
	return fmt.Errorf("none of %d requests is refused, the limit is %d", most, limit)
}

// measure measures one process of each contender.
func (r *results) measure(ctx context.Context, b *bench) error {
	subjects := make([]*subject, len(r.contenders))
	for i, c := range r.contenders {
		var err error
		if subjects[i], err = c.start(ctx, b, site.Never); err != nil {
			return fmt.Errorf("%s/%s: %w", r.name, c.name, err)
		}
	}
	for round := range b.rounds {
		for i := range subjects {
			// Each round begins with another contender, so that none always follows the same.
			i = (i + round) % len(subjects)
			c := r.contenders[i]
			values, err := subjects[i].round(ctx)
			if err != nil {
				return fmt.Errorf("%s/%s: %w", r.name, c.name, err)
			}
			r.values[c.name] = append(r.values[c.name], values)
		}
	}
	return nil
}

// String returns the figures as tables in Markdown.
func (r *results) String() (tables string) {
	for from, to, title := 0, 0, r.title; from < len(r.metrics); from, title = to, r.tables[to] {
		for to++; to < len(r.metrics) && r.tables[to] == ""; {
			to++
		}
		tables += r.table(title, from, to)
	}
	return tables
}

// table returns a table of some metrics. It leaves out rows without a figure.
func (r *results) table(title string, from, to int) string {
	head := []string{title}
	for _, m := range r.metrics[from:to] {
		for _, shown := range m.shown {
			head = append(head, map[rune]string{'v': m.title, 'a': m.title, 'm': m.title + ", added", 'r': r.reference}[shown])
		}
	}
	table := page.Head(head...)
	for _, c := range r.contenders {
		row := []string{c.title}
		for i := from; i < to; i++ {
			for _, shown := range r.metrics[i].shown {
				row = append(row, r.cell(c, i, r.metrics[i], shown))
			}
		}
		if strings.Join(row[1:], "") != "" {
			table += page.Row(row...)
		}
	}
	return table
}

// cell returns a metric's median, and where most values lie; empty if there is none.
func (r *results) cell(c contender, i int, m metric, shown rune) string {
	values := r.series(c, i, shown)
	if len(values) == 0 {
		return ""
	}
	s := page.SpreadOf(values)
	if shown == 'a' {
		s.Median = 0
		for _, v := range values {
			s.Median += v / float64(len(values))
		}
	}
	return m.text(s, shown)
}

// series returns the values of a metric of all rounds; none if the contender has not what is shown.
func (r *results) series(c contender, i int, shown rune) (values []float64) {
	for round, own := range r.values[c.name] {
		value := own[i]
		if shown == 'm' || shown == 'r' {
			if c.than == c.name || r.values[c.than] == nil {
				return nil
			}
			than := r.values[c.than][round][i]
			if value -= than; shown == 'r' {
				value = own[i] / than
			}
		}
		if math.IsNaN(value) {
			return nil
		}
		values = append(values, value)
	}
	return values
}

func (m metric) text(s page.Spread, shown rune) string {
	unit, digits := " "+m.unit, m.digits
	if shown == 'r' {
		unit, digits = " ×", 2
	}
	return fmt.Sprintf("**%.*f**%s (%.*f–%.*f)", digits, s.Median, strings.TrimRight(unit, " "), digits, s.Low, digits, s.High)
}

// quotes are a metric of one of Weir's contenders beside peers.
type quotes struct {
	weir   string
	metric int
	// shown is the ratio of both (r), or how much more Weir adds (m).
	shown rune
	peers []string
}

// beside returns a table of where Weir costs less than a peer, and where more. Of what the spread of rounds may have made
// it says neither.
func (r *results) beside() string {
	table := page.Head(r.title, "beside", "figure", "Weir beside it", "")
	by := map[string]contender{}
	for _, c := range r.contenders {
		by[c.name] = c
	}
	for _, q := range r.quotes {
		for _, peer := range q.peers {
			one, both := 0.0, r.series(by[q.weir], q.metric, 'v')
			theirs := r.series(by[peer], q.metric, 'v')
			if q.shown == 'm' {
				both, theirs = r.series(by[q.weir], q.metric, 'm'), r.series(by[peer], q.metric, 'm')
			}
			for i := range both {
				if both[i] -= theirs[i]; q.shown == 'r' {
					one, both[i] = 1, (both[i]+theirs[i])/theirs[i]
				}
			}
			s, verdict := page.SpreadOf(both), "neither"
			if s.High < one {
				verdict = "less"
			} else if s.Low > one {
				verdict = "more"
			}
			m := r.metrics[q.metric]
			table += page.Row(by[q.weir].title, by[peer].title, m.title, m.text(s, q.shown), verdict)
		}
	}
	return table
}

// choose returns the groups with the contenders whose names match a regular expression, and what they are compared with.
func choose(only string) (chosen []group, err error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	var names []string
	some := false
	for _, g := range groups {
		wanted := map[string]bool{}
		for _, c := range g.contenders {
			name := g.name + "/" + c.name
			names = append(names, name)
			if pattern.MatchString(name) {
				wanted[c.name], wanted[c.than], some = true, true, true
			}
		}
		g.contenders = slices.DeleteFunc(slices.Clone(g.contenders), func(c contender) bool { return !wanted[c.name] })
		chosen = append(chosen, g)
	}
	if !some {
		return nil, fmt.Errorf("-only: want one of %s, got %.40q", strings.Join(names, ", "), only)
	}
	return chosen, nil
}

// wait waits until a limiter has done what it has put off.
func (b *bench) wait(ctx context.Context) error {
	select {
	case <-time.After(b.settle):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookPath returns the path of a program, also of one that only the system's administrator runs.
func lookPath(program string) (path string, err error) {
	if path, err = exec.LookPath(program); err != nil {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", program))
	}
	if err != nil {
		err = fmt.Errorf("%w: install it: scripts/test-dependencies bench", err)
	}
	return path, err
}

var groups = []group{requests(), proxies(), services(), libraries(), redises()}

var number = regexp.MustCompile(`\d+\.\d+\.\d+`)

// versionOf returns the version that a program tells.
func versionOf(program, flag string) string {
	path, err := lookPath(program)
	if err != nil {
		return program + " unknown"
	}
	said, _ := exec.Command(path, flag).CombinedOutput() // without a version it is unknown, too
	return program + " " + number.FindString(string(said))
}

func envoyVersion() string {
	newest, _ := envoytest.Newest() // it has run
	return "Envoy " + newest.Version
}

// digest names a build of Weir's.
func digest(file string) string {
	content, _ := os.ReadFile(file) // it has run
	return fmt.Sprintf("%s of SHA-256 %.6x…", filepath.Base(file), sha256.Sum256(content))
}

// built returns the version of a program in Go.
func built(name, file string) string {
	if info, err := buildinfo.ReadFile(file); err == nil {
		return name + " " + info.Main.Version
	}
	return name + " unknown"
}

// linked returns the versions of this program's modules whose names end so.
func linked(names ...string) (versions []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, module := range info.Deps {
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(module.Path, name) }) {
			versions = append(versions, strings.TrimPrefix(module.Path, "github.com/")+" "+module.Version)
		}
	}
	return versions
}
