package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"weir/internal/server"
)

const usedUsage = `NAMESPACE [RULE]

  weir usage default
  weir usage default dollars --month 2026-11
  weir usage default dollars --by key,model,day --csv
  weir usage default --by month --month 2026-01..2026-11 --json
  weir usage default dollars --push https://openmeter.example/api/v1/events --state pushed --every 1m

It tells what each key has used of rules that reveal names, for the last 400 days.
The last columns tell how the key stands in the rule's longest window: how much is used, and when the
budget ends at this pace.
`

func used(ctx context.Context, args []string, env environment) error {
	var backend backendFlags
	var month, by string
	var asCSV, asJSON bool
	push := usagePush{backend: &backend, out: env.stdout, stderr: env.stderr, now: time.Now}
	flags := flag.NewFlagSet("usage", flag.ContinueOnError)
	flags.StringVar(&month, "month", "", "the `month`, such as 2026-11, or several, as in 2026-01..2026-11; this month in UTC if empty")
	flags.StringVar(&by, "by", "key", "`columns` that get rows of their own, besides the rule: key, model, day and month, with commas")
	flags.BoolVar(&asCSV, "csv", false, "print CSV, whose columns are the same whatever --by says")
	flags.BoolVar(&asJSON, "json", false, "print what GET /v1/usage answers")
	push.define(flags)
	operands, err := backend.parse(flags, args, env, usedUsage, 1, 2, "a namespace, and a rule or none")
	switch {
	case err != nil:
		return err
	case asCSV && asJSON:
		return fmt.Errorf("%w: want --csv or --json", errUsage)
	case push.target != "" && (asCSV || asJSON || month != "" || by != "key"):
		return fmt.Errorf("%w: --push sends each day's usage by key and model: want no --by, --month, --csv or --json", errUsage)
	case push.target == "" && (push.state != "" || push.every != 0 || push.since != ""):
		return fmt.Errorf("%w: --state, --every and --since go with --push", errUsage)
	}
	if push.target != "" {
		if push.namespace = operands[0]; len(operands) > 1 {
			push.rule = operands[1]
		}
		if err := push.check(env); err != nil {
			return err
		}
		return push.run(ctx)
	}
	query := queryOf(operands[0], operands[1:], "rule")
	query.Set("by", by)
	if month != "" {
		query.Set("month", month)
	}
	found, err := get[server.Usage](ctx, &backend, server.UsagePath, query)
	switch {
	case err != nil:
		return err
	case asJSON:
		return json.NewEncoder(env.stdout).Encode(found)
	case asCSV:
		return usedCSV(env.stdout, &found)
	}
	return cmp.Or(usedTable(env.stdout, &found), gapTable(env.stdout, &found))
}

// gapTable prints of which times usage may be missing.
func gapTable(out io.Writer, found *server.Usage) error {
	if found.GapsSince != nil {
		fmt.Fprintf(out, "\ngaps before %s may be forgotten: there have been many workers since\n", found.GapsSince.Format(time.RFC3339))
	}
	if len(found.Gaps) == 0 {
		return nil
	}
	fmt.Fprintln(out, "\nworkers of proxies that ended without a word, and what they had not told is missing:")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROXY\tHAD TOLD ALL AT\tGIVEN UP AT\tLAST HEARD")
	for _, g := range found.Gaps {
		last := "counting"
		if g.Idle {
			last = "idle"
		}
		fmt.Fprintln(w, strings.Join([]string{g.Node.String(), g.From.Format(time.RFC3339Nano), g.To.Format(time.RFC3339), last}, "\t"))
	}
	return w.Flush()
}

// usedCSV prints CSV, with the same columns for any grouping.
func usedCSV(out io.Writer, found *server.Usage) error {
	w := csv.NewWriter(out)
	lines := [][]string{{"month", "day", "rule", "key", "hash", "model", "hits", "budget_used", "budget_quota", "budget_start", "budget_end", "budget_ends_at", "gap_node", "gap_from", "gap_to", "gap_idle"}}
	for _, r := range found.Rows {
		line := []string{r.Month, r.Day, r.Rule, cell(keyOf(&r)), r.Hash, cell(modelOf(&r)), strconv.FormatInt(r.Hits, 10), "", "", "", "", "", "", "", "", ""}
		if b := r.Budget; b != nil {
			line[7], line[8] = strconv.FormatUint(b.Used, 10), strconv.FormatUint(b.Quota, 10)
			line[9], line[10] = b.Start.Format(time.RFC3339), b.End.Format(time.RFC3339)
			if b.EndsAt != nil {
				line[11] = b.EndsAt.Format(time.RFC3339)
			}
		}
		lines = append(lines, line)
	}
	for _, g := range found.Gaps {
		lines = append(lines, append(append(make([]string, 6), "0"), "", "", "", "", "", g.Node.String(), g.From.Format(time.RFC3339), g.To.Format(time.RFC3339), strconv.FormatBool(g.Idle)))
	}
	return w.WriteAll(lines)
}

// cell returns a text that no spreadsheet takes for a formula, since clients choose the values of
// keys.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// keyOf returns a key for people: its values, or its hash if it has no name.
func keyOf(r *server.UsageRow) string {
	if r.Others {
		return "others"
	}
	return valuesText(r.Values)
}

func usedTable(out io.Writer, found *server.Usage) error {
	if len(found.Rows) == 0 {
		fmt.Fprintf(out, "from %s to %s nothing was used by rules that reveal names\n", found.From, found.To)
		return nil
	}
	var period, key, model, budget bool
	for _, r := range found.Rows {
		period = period || r.Day+r.Month != ""
		key = key || r.Hash != "" || r.Others
		model = model || r.Model != ""
		budget = budget || r.Budget != nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	columns := []struct {
		shown bool
		title string
		cell  func(r *server.UsageRow) string
	}{
		{period, "WHEN", func(r *server.UsageRow) string { return cmp.Or(r.Day, r.Month) }},
		{true, "RULE", func(r *server.UsageRow) string { return r.Rule }},
		{key, "KEY", func(r *server.UsageRow) string { return cmp.Or(keyOf(r), r.Hash) }},
		{model, "MODEL", modelOf},
		{true, "USED", func(r *server.UsageRow) string { return strconv.FormatInt(r.Hits, 10) }},
		{budget, "BUDGET", func(r *server.UsageRow) string { stands, _ := standing(r.Budget); return stands }},
		{budget, "AT THIS PACE", func(r *server.UsageRow) string { _, ends := standing(r.Budget); return ends }},
	}
	lines := make([][]string, 1+len(found.Rows))
	for _, c := range columns {
		if c.shown {
			lines[0] = append(lines[0], c.title)
			for i := range found.Rows {
				lines[1+i] = append(lines[1+i], c.cell(&found.Rows[i]))
			}
		}
	}
	for _, line := range lines {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	return w.Flush()
}

// minuteUTC is the layout of a budget's times. The zone of its rule is not known here.
const minuteUTC = "2006-01-02 15:04Z"

// standing says how much of a budget is used, and where it will end.
func standing(b *server.UsageBudget) (stands, ends string) {
	if b == nil {
		return "", ""
	}
	share := 100.0
	if b.Quota > 0 {
		share = 100 * float64(b.Used) / float64(b.Quota)
	}
	stands = fmt.Sprintf("%d of %d (%.0f %%) until %s", b.Used, b.Quota, share, b.End.Format(minuteUTC))
	switch {
	case b.AtEnd == nil:
		return stands, ""
	case b.Used >= b.Quota:
		return stands, "used up"
	case b.EndsAt != nil:
		return stands, "ends on " + b.EndsAt.Format(minuteUTC)
	case b.Quota > 0:
		return stands, fmt.Sprintf("%.0f %% at the end", 100*float64(*b.AtEnd)/float64(b.Quota))
	}
	return stands, ""
}

func modelOf(r *server.UsageRow) string {
	if r.Model == "" {
		return ""
	}
	return word(r.Model)
}
