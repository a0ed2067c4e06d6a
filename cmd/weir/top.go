package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/server"
	"weir/internal/store"
)

const (
	topUsage = `NAMESPACE [RULE]

  weir top shop
  weir top shop per-user --follow

It shows the keys that asked for most hits in the last minute or two, and those that were refused most,
each with its figures of the last ten seconds. If there are more than ten rules, it shows the ten that
refuse most. A worker that has been silent for 15 seconds is not counted. Keys are hashes unless their
rule says otherwise with reveal. Flags may come anywhere.
`
	reportUsage = `NAMESPACE RULE

  weir report shop new-limit

It says which share of requests and keys a shadow rule would refuse, which keys are worst off, the least
limit that refuses at most 0.1 %, and on which keys these figures rest. For an enforced rule it says
what the rule has refused.
`
	// mostRules is how many rules are shown: those that refuse most.
	mostRules = 10
	// followEvery is how often --follow asks.
	followEvery = 2 * time.Second
)

// topCommand is the command line of weir top and weir report.
type topCommand struct {
	out     io.Writer
	backend backendFlags
	keys    int
	json    bool
}

// parse parses a command line with at least that number of operands.
func (c *topCommand) parse(flags *flag.FlagSet, args []string, env environment, usage string, least int) (query url.Values, err error) {
	c.out = env.stdout
	flags.BoolVar(&c.json, "json", false, "print JSON")
	flags.IntVar(&c.keys, "keys", 10, "`number` of keys of each list to show, 1 to 64")
	want, _, _ := strings.Cut(usage, "\n")
	want += ", and --keys of 1 to 64; weir namespaces lists the namespaces"
	operands, err := c.backend.parse(flags, args, env, usage, least, 2, want)
	if err != nil {
		return nil, err
	}
	if c.keys < 1 || c.keys > 64 {
		return nil, fmt.Errorf("%w: want %s", errUsage, want)
	}
	query = queryOf(operands[0], operands[1:], "rule")
	query.Set("keys", strconv.Itoa(c.keys))
	return query, nil
}

func showTop(ctx context.Context, args []string, env environment) error {
	var c topCommand
	flags := flag.NewFlagSet("top", flag.ContinueOnError)
	follow := flags.Bool("follow", false, "show it again every two seconds, in its place on a terminal; while the backend can't be asked, say why, and go on")
	query, err := c.parse(flags, args, env, topUsage, 1)
	if err != nil {
		return err
	}
	if *follow {
		ticks := time.Tick(followEvery)
		return c.follow(ctx, query, env.stderr, ticks)
	}
	page, err := c.page(ctx, query)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c.out, page); err != nil || c.json {
		return err
	}
	return c.backend.tellMoved(ctx, c.out, query.Get("namespace"))
}

// page returns the text of weir top.
func (c *topCommand) page(ctx context.Context, query url.Values) (string, error) {
	top, err := get[backend.Top](ctx, &c.backend, server.TopPath, query)
	if err != nil {
		return "", err
	}
	var page strings.Builder
	if c.json {
		err = json.NewEncoder(&page).Encode(top)
	} else {
		err = c.describe(&page, &top)
	}
	return page.String(), err
}

// follow prints the page again at each tick, until ctx ends or the backend refuses. If the backend
// can't be reached, it reports each new reason once, and leaves the last page in place.
func (c *topCommand) follow(ctx context.Context, query url.Values, trouble io.Writer, ticks <-chan time.Time) error {
	redraw := ""
	if !c.json && terminalOf(c.out) != nil {
		redraw = "\x1b[H\x1b[2J"
	}
	for said := ""; ; {
		page, err := c.page(ctx, query)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refusal{}):
			return err
		case err != nil:
			if text := err.Error(); text != said {
				said = text
				fmt.Fprintf(trouble, "weir top: %s; asking again\n", text)
			}
		default:
			said = ""
			if _, err := io.WriteString(c.out, redraw+page); err != nil {
				return err
			}
		}
		select {
		case <-ticks:
		case <-ctx.Done():
			return nil
		}
	}
}

// describe prints the first keys of each rule.
func (c *topCommand) describe(out io.Writer, top *backend.Top) error {
	fmt.Fprintln(out, reported(top))
	if text := unlike(top.Configurations); text != "" {
		fmt.Fprintln(out, text)
	}
	rules := slices.Clone(top.Rules)
	if len(rules) > mostRules {
		slices.SortStableFunc(rules, func(a, b backend.TopRule) int {
			return cmp.Or(cmp.Compare(b.ShareRefused*b.Requests, a.ShareRefused*a.Requests), cmp.Compare(b.Requests, a.Requests))
		})
		rules = rules[:mostRules]
		defer fmt.Fprintf(out, "\nand %d rules that refuse less; with its name behind the namespace a rule is shown alone\n", len(top.Rules)-mostRules)
	}
	for _, r := range rules {
		fmt.Fprintf(out, "\n%s%s: %s requests/s, %s hits/s, %s of requests refused\n", r.Rule, shadowed(&r), rate(r.Requests),
			rate(r.Hits), percent(r.ShareRefused))
		if len(r.Limits) > 0 {
			fmt.Fprintf(out, "  %s\n", limitsText(r.Limits, r.Varies, false))
		}
		if n := r.Recent; n != nil {
			share := 0.0
			if n.Requests > 0 {
				share = n.RefusedRequests / n.Requests
			}
			fmt.Fprintf(out, "  in the last %.0f s: %s requests/s, %s hits/s, %s of requests refused\n", r.RecentSeconds, rate(n.Requests), rate(n.Hits), percent(share))
		}
		err := c.table(out, &r, "most hits", r.Used, r.Others)
		if err == nil && len(r.Refused) > 0 {
			err = c.table(out, &r, "most refused", r.Refused, r.OthersRefused)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func shadowed(r *backend.TopRule) string {
	if r.Shadow {
		return " (shadow)"
	}
	return ""
}

// reported says which nodes have reported, and when.
func reported(top *backend.Top) string {
	if top.Nodes == 0 {
		return "no node has reported in the last half minute: they do so every 5 s, once there are requests; weir namespaces lists the namespaces"
	}
	text := fmt.Sprintf("%s, with %s; the oldest report is %.1f s old", count(top.Nodes, "node has reported", "nodes have reported"),
		count(top.Senders, "worker", "workers"), top.OldestSeconds)
	if top.Full {
		text += fmt.Sprintf("\nthe backend keeps the reports of %d workers, and has no room for others: figures may lack some", store.MaxReports)
	}
	return text
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// table prints keys, and the accuracy of their figures.
func (c *topCommand) table(out io.Writer, r *backend.TopRule, title string, keys []backend.TopKey, others float64) error {
	shown := keys[:min(len(keys), c.keys)]
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	recent := func(text string) string {
		if r.Recent == nil {
			return ""
		}
		return text + "\t"
	}
	column := recent(fmt.Sprintf("last %.0f s", r.RecentSeconds))
	stands := slices.ContainsFunc(shown, func(k backend.TopKey) bool { return len(k.Limits) > 0 })
	now := ""
	if stands {
		now = "\tleft now\troom"
	}
	fmt.Fprintf(table, "  %s\thits/s\t%srefused/s\t%sused\tnodes%s\n", title, column, column, now)
	for _, k := range shown {
		if now = ""; stands {
			now = leftNow(&k)
		}
		fmt.Fprintf(table, "  %s\t%s\t%s%s\t%s%s\t%d of %d%s\n", cmp.Or(valuesText(k.Values), k.Hash),
			estimate(k.Hits, k.MoreHits, k.Margin), recent(rate(k.RecentHits)),
			estimate(k.Refused, k.MoreRefused, k.MarginRefused), recent(rate(k.RecentRefused)), percent(k.Use), k.Nodes, r.Nodes, now)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if left := len(keys) - len(shown); left > 0 {
		fmt.Fprintf(out, "  and %d more\n", left)
	}
	if others > 0 {
		fmt.Fprintf(out, "  a key that is not among the first may have up to %s/s\n", rate(others))
	}
	return nil
}

// leftNow says what is left of the key's tightest limit, and when there is room.
func leftNow(k *backend.TopKey) string {
	var tightest *backend.CounterLimit
	share := 2.0
	for i := range k.Limits {
		if l := &k.Limits[i]; l.Left != nil {
			if s := float64(*l.Left) / float64(max(1, most(l))); s < share {
				tightest, share = l, s
			}
		}
	}
	if tightest == nil {
		return "\t\t"
	}
	return fmt.Sprintf("\t%d of %d\t%s", *tightest.Left, most(tightest), room(tightest))
}

// most is how many hits a known limit lets pass at once.
func most(l *backend.CounterLimit) uint64 { return cmp.Or(l.Burst, *l.Limit) }

// room says when a known limit has room for another hit.
func room(l *backend.CounterLimit) string {
	switch {
	case *l.Left > 0:
		return "now"
	case l.NextMS != nil:
		return "in " + (time.Duration(*l.NextMS) * time.Millisecond).String()
	case l.Algorithm == inFlight:
		return "when a request ends"
	}
	return "never"
}

// estimate prints a rate, how much higher it may be, and its margin.
func estimate(n, more, margin float64) string {
	text := rate(n)
	if margin >= n/100 && margin > 0 {
		text += " ±" + rate(margin)
	}
	if more >= n/100 && more > 0 {
		text += " (+" + rate(more) + ")"
	}
	return text
}

func rate(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 10:
		return strconv.FormatFloat(n, 'f', 2, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

func percent(share float64) string {
	switch p := share * 100; {
	case p == 0, p == 100:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	case p < 0.01:
		return "less than 0.01 %"
	default:
		return strconv.FormatFloat(p, 'f', 2, 64) + " %"
	}
}

// valuesText returns the values of a key without control characters, those that are cut with an ellipsis.
func valuesText(values []backend.Value) string {
	words := make([]string, len(values))
	for i, v := range values {
		if words[i] = word(v.Text); v.Cut {
			words[i] += "…"
		}
	}
	return strings.Join(words, " ")
}

func report(ctx context.Context, args []string, env environment) error {
	var c topCommand
	query, err := c.parse(flag.NewFlagSet("report", flag.ContinueOnError), args, env, reportUsage, 2)
	if err != nil {
		return err
	}
	top, err := get[backend.Top](ctx, &c.backend, server.TopPath, query)
	if err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(c.out).Encode(top)
	}
	fmt.Fprintln(c.out, reported(&top))
	if len(top.Rules) == 0 {
		return fmt.Errorf("no node has seen a request of rule %.80q", query.Get("rule"))
	}
	r := &top.Rules[0]
	has := "has refused"
	if r.Shadow {
		has = "would have refused"
	}
	fmt.Fprintf(c.out, "\n%s%s in the last %.0f s:\n", r.Rule, shadowed(r), r.Seconds)
	if len(r.Limits) > 0 {
		fmt.Fprintf(c.out, "  it allows %s\n", limitsText(r.Limits, r.Varies, false))
	}
	fmt.Fprintf(c.out, "  it %s %s of requests (%d of %d); this is exact\n", has, percent(r.ShareRefused), r.Rejected, r.Asked)
	c.measured(r)
	if len(r.Refused) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	return c.table(c.out, r, "worst off", r.Refused, r.OthersRefused)
}

// measured prints the figures of a shadow rule's keys.
func (c *topCommand) measured(r *backend.TopRule) {
	m := r.Measured
	if m == nil {
		fmt.Fprintln(c.out, "  the share of keys and the least limit are known of shadow rules only")
		return
	}
	of := "all of them"
	if m.Every > 1 {
		of = fmt.Sprintf("a sample of 1 in %.0f", m.Every)
	}
	if m.Keys > 0 {
		fmt.Fprintf(c.out, "  it would have refused %s of keys (%d of %d, %s)\n", percent(float64(m.Refused)/float64(m.Keys)), m.Refused, m.Keys, of)
	}
	for _, l := range m.Limits {
		width := config.Duration(l.WidthMS) * config.Millisecond
		fmt.Fprintf(c.out, "  limit %d a %v: ", l.Limit, width)
		switch {
		case l.Windows == 0:
			fmt.Fprintln(c.out, "nothing is known of its windows yet")
			continue
		case l.Running:
			fmt.Fprintf(c.out, "at least %d would be needed, as no window has ended that all nodes have seen; ", l.Least)
		default:
			fmt.Fprintf(c.out, "the least that refuses at most 0.1 %% of hits is %d; ", l.Least)
		}
		fmt.Fprintf(c.out, "the most of a key in a window is %d (%d hits in %s of the clock)\n", l.Most, l.Hits, count(l.Windows, "window", "windows"))
		fmt.Fprintf(c.out, "    %s\n", madeFrom(&l))
	}
}

// madeFrom says which keys a least limit is based on.
func madeFrom(l *backend.MeasuredLimit) string {
	switch {
	case l.Sure == nil:
		return "made from the sample of keys alone: some node's version does not tell of the keys with most hits"
	case *l.Unseen == 0:
		return "made from all keys"
	case *l.Sure == l.Least:
		return fmt.Sprintf("made from all keys with more than %d hits in a window; others are sure not to matter", *l.Unseen)
	}
	return fmt.Sprintf("made from the keys with most hits and the sample; a key that is in neither had %d in a window at most, so %d is sure", *l.Unseen, *l.Sure)
}
