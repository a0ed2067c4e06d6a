package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/internal/named"
	"weir/internal/server"
)

const whyUsage = `NAMESPACE VALUE…

  weir why shop ann
  weir why shop 192.0.2.1

It says which rules refuse a key now, and when they have room again. It asks the counter of each rule
that the namespace's proxies have told, if the rule's key has no values, or may have those that are given.
Whether a request meets a rule's conditions is up to the request. Flags may come anywhere.
`

func why(ctx context.Context, args []string, env environment) error {
	c := counterCommand{out: env.stdout}
	flags := flag.NewFlagSet("why", flag.ContinueOnError)
	c.defineKey(flags)
	operands, err := c.backend.parse(flags, args, env, whyUsage, 1, math.MaxInt, "a namespace, and the key's values; weir namespaces lists the namespaces")
	if err != nil {
		return err
	}
	c.namespace = operands[0]
	values, err := c.keys.or(operands[1:])
	if err != nil {
		return err
	}
	rules, err := c.backend.known(ctx, c.namespace)
	if err != nil {
		return err
	}
	secret, err := c.secret.read(env)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(env.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tNOW\tLIMITS")
	asked := 0
	for _, r := range rules {
		now, limits, err := c.why(ctx, &r, secret, values)
		if err != nil {
			return errors.Join(w.Flush(), err) // what is known of the rules before
		}
		if now != otherKey {
			asked++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", word(r.Rule), now, limits)
	}
	if asked == 0 {
		return fmt.Errorf("no proxy has told a rule of %.80q that has this key of %d values: weir namespaces %s lists the rules", c.namespace, len(values), c.namespace)
	}
	return w.Flush()
}

// otherKey stands where a rule's key can't have the values.
const otherKey = "other key"

// why returns a rule's verdict of a key, and how its limits stand.
func (c *counterCommand) why(ctx context.Context, r *server.KnownRule, secret string, values []string) (now, limits string, err error) {
	rule := toldKey(r)
	if len(r.Key) == 0 {
		values = nil
	}
	if shared := len(r.Key) - 2; r.Fair && shared >= 0 && len(values) == len(r.Key) {
		values = slices.Clone(values)
		values[shared] = ""
	}
	c.rule, c.key = r.Rule, values
	switch {
	case r.Key != nil && named.Check(&rule, values) != nil:
		return otherKey, "the rule's key is " + keyForm(r), nil
	case r.Key == nil:
		return "not known", "the key is up to the program", nil
	case r.Local:
		return "not known", "each proxy counts alone: weir top " + c.namespace + " shows what it refuses", nil
	}
	if err := c.identify(secret, rule.Key); err != nil {
		return "", "", err
	}
	counted, err := c.ask(ctx)
	if err != nil {
		return "", "", err
	}
	now, limits = verdict(r.Mode, &counted)
	if r.Fair {
		limits += "; of all keys together: the even part of each is counted at its proxies"
		if now == "passes" {
			now = "may pass"
		}
	}
	return now, limits, nil
}

// verdict says whether a key's counter has room, as far as is known, and how its limits stand.
func verdict(mode string, counted *server.Counter) (now, limits string) {
	refuses, blocked, known := false, false, true
	var all []string
	for i := range counted.Limits {
		l := &counted.Limits[i]
		switch {
		case l.Algorithm == block && l.Used > 0:
			blocked = true
			text := "blocked"
			if l.ResetMS != nil {
				text += fmt.Sprintf(", free in %v", time.Duration(*l.ResetMS)*time.Millisecond)
			}
			all = append(all, text)
		case l.Algorithm == block:
		case l.Limit == nil:
			known = false
			all = append(all, usedText(l, " of an unknown limit"))
		default:
			refuses = refuses || *l.Left == 0
			all = append(all, fmt.Sprintf("%s, room %s", usedText(l, fmt.Sprint(" of ", most(l))), room(l)))
		}
	}
	if len(all) == 0 {
		all = []string{"nothing is used"}
	}
	if counted.Varies {
		all = append(all, "some keys have other limits")
	}
	if mode = cmp.Or(counted.Mode, mode); mode == "enforce" {
		mode = ""
	}
	switch {
	case !blocked && !refuses && !known:
		return "not known", strings.Join(all, "; ")
	case !blocked && !refuses && counted.Varies:
		now = "may pass"
	case !blocked && !refuses:
		now = "passes"
	case !blocked && counted.Varies:
		now = "may refuse"
	case mode != "":
		now = "would refuse"
	default:
		now = "refuses"
	}
	if mode != "" && (blocked || refuses) {
		now += " (" + mode + ")"
	}
	return now, strings.Join(all, "; ")
}
