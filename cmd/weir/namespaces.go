package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/server"
)

const namespacesUsage = `[NAMESPACE]

  weir namespaces
  weir namespaces shop

It lists the namespaces in which proxies have reported within a month, as they last stood: how many
proxies reported in half a minute, how many of them have another configuration than most, and how many
rules most have. That is noted each minute while proxies report. With a namespace it shows how that
stands now, and the rules that its proxies have told, each as most of those have it that have it.
`

func namespaces(ctx context.Context, args []string, env environment) error {
	var of backendFlags
	flags := flag.NewFlagSet("namespaces", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print what GET /v1/namespaces answers")
	operands, err := of.parse(flags, args, env, namespacesUsage, 0, 1, "at most one namespace")
	if err != nil {
		return err
	}
	query := url.Values{}
	if len(operands) > 0 {
		query.Set("namespace", operands[0])
	}
	found, err := get[server.Namespaces](ctx, &of, server.NamespacesPath, query)
	if err != nil {
		return err
	}
	switch {
	case *asJSON:
		return json.NewEncoder(env.stdout).Encode(found)
	case len(found.Namespaces) == 0:
		return fmt.Errorf("no proxy has reported in %s: they do so every 5 s, once there are requests", cmp.Or(strings.Join(operands, ""), "any namespace that you may read"))
	}
	return namespacesTable(env.stdout, &found, len(operands) > 0)
}

func namespacesTable(out io.Writer, found *server.Namespaces, rules bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tPROXIES\tUNLIKE MOST\tRULES\tLAST REPORT")
	for _, n := range found.Namespaces {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%v ago\n", n.Namespace, n.Nodes, n.Others, n.Rules, time.Duration(n.HeardSeconds)*time.Second)
	}
	if !rules {
		return w.Flush()
	}
	n := &found.Namespaces[0]
	fmt.Fprintln(w, "\nRULE\tMODE\tKEY\tLIMITS")
	for _, r := range n.Known {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", word(r.Rule), text(r.Mode), keyForm(&r), limitsText(r.Limits, r.Varies, r.Local))
	}
	if text := unlike(n.Configurations); text != "" {
		fmt.Fprintf(w, "\n%s\n", text)
	}
	return w.Flush()
}

// keyForm says which values the key of a rule has.
func keyForm(r *server.KnownRule) string {
	switch {
	case r.Key == nil:
		return "up to the program"
	case len(r.Key) == 0:
		return "-"
	}
	values := make([]string, len(r.Key))
	for i, k := range r.Key {
		if values[i] = "VALUE"; k.ClientIP != nil {
			values[i] = fmt.Sprintf("ADDRESS/%d/%d", k.ClientIP.IPv4, k.ClientIP.IPv6)
		}
		if r.Fair && i == len(r.Key)-2 {
			values[i] = `""`
		}
	}
	return strings.Join(values, " ")
}

// limitsText describes the limits of a rule.
func limitsText(limits []backend.KnownLimit, varies, local bool) string {
	all := make([]string, len(limits))
	for i, l := range limits {
		span := "a " + cmp.Or(l.Period, fmt.Sprint(config.Duration(l.WidthMS)*config.Millisecond))
		if l.Algorithm == inFlight {
			span = "at a time"
		}
		if varies && l.Limit == math.MaxUint32 { // of the rate limit service
			all[i] = "unlimited"
			continue
		}
		algorithm := strings.ReplaceAll(word(l.Algorithm), "_", " ")
		if l.Burst != 0 {
			algorithm += fmt.Sprintf(" of %d", l.Burst)
		}
		all[i] = fmt.Sprintf("%d %s (%s)", l.Limit, span, algorithm)
	}
	line := strings.Join(all, ", ")
	if varies {
		line += "; some keys have others"
	}
	if local {
		line += "; each proxy counts alone"
	}
	return line
}

// unlike says which nodes have another configuration than most; nothing if none has.
func unlike(all []backend.Configuration) string {
	const most = 5
	total := 0
	var others []string
	for i := range all {
		for _, node := range all[i].Nodes {
			if total++; i > 0 {
				others = append(others, node.String())
			}
		}
	}
	if len(others) == 0 {
		return ""
	}
	has := "nodes have"
	if len(others) == 1 {
		has = "nodes has"
	}
	if len(all[0].Nodes) == len(all[1].Nodes) {
		return fmt.Sprintf("the nodes have %d configurations, and no configuration is that of most", len(all))
	}
	list := strings.Join(others[:min(len(others), most)], ", ")
	if more := len(others) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d of %d %s another configuration than most: %s", len(others), total, has, list)
}
