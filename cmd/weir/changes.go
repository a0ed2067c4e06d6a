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
	"strings"
	"text/tabwriter"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/server"
)

const changesUsage = `NAMESPACE

  weir changes shop
  weir changes shop --since 24h
  weir changes shop --since 2026-11-28T02:00:00Z --json

It tells who has changed limits, counters and prices in a namespace, from where and why, as --reason of
the other commands says, and what was there before. weir serve keeps this for 13 months, and 10,000
changes of a namespace.
`

func changes(ctx context.Context, args []string, env environment) error {
	var of backendFlags
	var since moment
	flags := flag.NewFlagSet("changes", flag.ContinueOnError)
	flags.Func("since", "only changes since this `time`: a day, which begins at 0:00 UTC, a time such as 2026-12-01T08:30:00Z, or a duration until now such as 24h", since.setPast)
	asJSON := flags.Bool("json", false, "print what GET /v1/changes answers")
	operands, err := of.parse(flags, args, env, changesUsage, 1, 1, "a namespace")
	if err != nil {
		return err
	}
	query := url.Values{"namespace": {operands[0]}}
	if at := time.Time(since); !at.IsZero() {
		query.Set("since", at.UTC().Format(time.RFC3339))
	}
	found, err := get[server.Changes](ctx, &of, server.ChangesPath, query)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(env.stdout).Encode(found)
	}
	return changesTable(env.stdout, found.Changes)
}

// changesTable prints changes, with a line for each key or price.
func changesTable(out io.Writer, all []backend.Record) error {
	if len(all) == 0 {
		fmt.Fprintln(out, "nobody has changed anything")
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHEN\tWHO\tFROM\tWHAT\tOF\tBEFORE\tAFTER\tREASON")
	for _, r := range all {
		what, reason := text(r.What), word(r.Reason)
		if !r.Made {
			what += " (perhaps not made)"
		}
		if r.Reason == "" {
			reason = ""
		}
		who := word(cmp.Or(r.Name, map[string]string{"": "anybody", "token": "no-name"}[r.By], "no-name"))
		lead := fmt.Sprintf("%s\t%s\t%s\t%s", r.At.UTC().Format(time.RFC3339), who, word(r.Address), what)
		for _, c := range r.Of {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", lead, changedName(&c), text(c.Before), text(c.After), reason)
			lead, reason = "\t\t\t", ""
		}
		if r.More > 0 || len(r.Of) == 0 {
			fmt.Fprintf(w, "%s\tand %d more\t\t\t%s\n", lead, r.More, reason)
		}
	}
	return w.Flush()
}

// changedName names what was changed: a key of a rule by its values or its hash, or a price.
func changedName(c *backend.Changed) string {
	name := word(cmp.Or(c.Rule, c.List))
	if len(c.Values) > 0 {
		name += " " + valuesText(c.Values)
	}
	switch {
	case c.Model != "":
		name += " " + word(c.Model)
	case len(c.Values) == 0 && c.Hash != "":
		name += " " + word(c.Hash)
	}
	return name
}

// text returns what a server has said, so that it can't control the terminal.
func text(said string) string {
	if said == "" {
		return "-"
	}
	words := strings.Fields(said)
	for i := range words {
		words[i] = word(words[i])
	}
	return strings.Join(words, " ")
}

// setPast sets the moment, of which a duration says how long it is ago.
func (m *moment) setPast(text string) error {
	if err := m.Set(text); err != nil {
		return errors.New(strings.Replace(err.Error(), "from now", "until now", 1))
	}
	if ago, ok := config.ParseDuration(text); ok {
		*m = moment(time.Now().Add(-time.Duration(ago.Milliseconds()) * time.Millisecond))
	}
	return nil
}
