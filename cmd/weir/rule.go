package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/config"
	"weir/internal/named"
	"weir/internal/server"
	"weir/internal/wire"
)

const ruleUsage = `show NAMESPACE [RULE] | set | off | reset NAMESPACE RULE | off | reset --all NAMESPACE

  weir rule set shop per-user --mode shadow --until 6h --reason "refuses everybody"
  weir rule set shop per-user --limit 500/1m --limit 20000/1d
  weir rule off shop per-user
  weir rule off --all shop --until 30m --reason "incident 4711"
  weir rule show shop
  weir rule reset shop per-user

What is set holds for all keys of a rule, on all nodes within their sync_rate and after restarts, until
--until or reset. set replaces what was set before. Without --mode the configuration's mode stays, and
without --limit its limits. What weir override sets for single keys goes before --limit, and --limit
before the configuration's own overrides. Counters stay as they are.
A rule that is off counts nothing and lets everything pass. off --all does that to all rules of the
namespace, whatever is set for single ones; reset --all ends it.
set and off fail and change nothing if no node has told of the rule, and set if it has other windows at
the nodes, or --limit and no requests in the last minutes: then --config checks by the proxies'
configuration, and --force sets it unchecked.
`

func wholeRule(ctx context.Context, args []string, env environment) error {
	var c overrideCommand
	var mode string
	var limits values
	flags := flag.NewFlagSet("rule", flag.ContinueOnError)
	c.define(flags)
	flags.StringVar(&mode, "mode", "", "`mode` of the rule: enforce, shadow or off")
	flags.Func("limit", "a `LIMIT/WINDOW`, such as 1000/1m, in the place of the rule's with that window; once for each of its limits", limits.Set)
	flags.BoolVar(&c.all, "all", false, "all rules of the namespace, with off and reset")
	flags.BoolVar(&c.json, "json", false, "show as JSON")
	operands, err := c.backend.parse(flags, args, env, ruleUsage, 2, math.MaxInt, "show, set, off or reset, and a namespace")
	if err != nil {
		return err
	}
	c.out, c.env, c.namespace = env.stdout, env, operands[1]
	do, of := operands[0], operands[2:]
	sets := do == "set" || do == "off"
	switch {
	case !slices.Contains([]string{"show", "set", "off", "reset"}, do):
		return fmt.Errorf("%w: want show, set, off or reset, got %.80q", errUsage, do)
	case c.all && (len(of) > 0 || do != "off" && do != "reset"), !c.all && (len(of) > 1 || len(of) == 0 && do != "show"):
		return fmt.Errorf("%w: want NAMESPACE RULE, or --all NAMESPACE with off and reset", errUsage)
	case do != "set" && (mode != "" || len(limits) > 0), c.json && do != "show", !sets && (c.force || c.config != "" || !time.Time(c.until).IsZero()):
		return fmt.Errorf("%w: want --mode and --limit with set, --until, --config and --force with set and off, and --json with show", errUsage)
	}
	name := wire.AllRules
	if len(of) > 0 {
		name = of[0]
	}
	switch do {
	case "show":
		return c.showRules(ctx, of)
	case "reset":
		query := url.Values{"namespace": {c.namespace}, "rule": {name}, "whole": {""}}
		none := fmt.Errorf("nothing is set for rule %s", name)
		if c.all {
			none = errors.New("nothing is set for all rules")
		}
		return c.backend.remove(ctx, c.out, wire.OverridesPath, query, none)
	case "off":
		mode = wire.ModeNames[wire.Off]
	}
	o := server.Override{Rule: name, Mode: mode}
	for _, text := range limits {
		l, ok := parseOverrideLimit(text)
		if !ok {
			return fmt.Errorf("%w: --limit: want LIMIT/WINDOW such as 1000/1m, got %.80q", errUsage, text)
		}
		o.Limits = append(o.Limits, l)
	}
	switch {
	case mode == "" && len(limits) == 0:
		return fmt.Errorf("%w: want --mode or --limit", errUsage)
	case mode == "":
		o.Mode = wire.ModeNames[wire.Configured]
	case !slices.Contains(wire.ModeNames[wire.Enforce:], mode):
		return fmt.Errorf("%w: --mode: want enforce, shadow or off, got %.80q", errUsage, mode)
	}
	return c.put(ctx, &o)
}

func (c *overrideCommand) showRules(ctx context.Context, of []string) error {
	found, err := get[server.Overrides](ctx, &c.backend, wire.OverridesPath, url.Values{"namespace": {c.namespace}})
	if err != nil {
		return err
	}
	found.Overrides = slices.DeleteFunc(found.Overrides, func(o server.Override) bool {
		return o.Mode == "" || len(of) > 0 && o.Rule != of[0] && o.Rule != wire.AllRules
	})
	if len(of) > 0 && !slices.ContainsFunc(found.Overrides, func(o server.Override) bool { return o.Rule == of[0] }) && !c.backend.toldRule(ctx, c.namespace, of[0]) {
		if err := c.backend.knownRule(ctx, c.namespace, of[0]); errors.Is(err, errOthers) {
			return err
		}
	}
	if c.json {
		return json.NewEncoder(c.out).Encode(found)
	}
	for _, o := range found.Overrides {
		fmt.Fprintln(c.out, describeOverride(&o))
	}
	if len(found.Overrides) == 0 {
		fmt.Fprintln(c.out, strings.Join(append(slices.Clone(of), "as configured"), " "))
	}
	fmt.Fprintln(c.out, reach(&found))
	return nil
}

// tellMoved prints which rules are moved.
func (f *backendFlags) tellMoved(ctx context.Context, out io.Writer, namespace string) error {
	found, err := get[server.Overrides](ctx, f, wire.OverridesPath, url.Values{"namespace": {namespace}})
	for _, o := range found.Overrides {
		if o.Mode != "" {
			fmt.Fprintln(out, "\nset by weir rule:", describeOverride(&o))
		}
	}
	return err
}

// configuredRule finds a namespace's rule in the configuration file, and returns both.
func configuredRule(file, namespace, name string, env environment) (*config.Rule, *config.Config, error) {
	read, err := readConfiguration(file, env)
	if err != nil {
		return nil, nil, err
	}
	parsed := read.Config
	if parsed.Namespace != namespace {
		return nil, nil, fmt.Errorf("--config: %s is of the namespace %s, not of %.80q", file, parsed.Namespace, namespace)
	}
	var names []string
	for i := range parsed.Rules {
		rule := &parsed.Rules[i]
		if names = append(names, rule.Name); rule.Name == name {
			if rule.SyncRate < 0 {
				return nil, nil, fmt.Errorf("--config: each proxy counts %s alone, as its sync_rate is below 0, so the backend does not know it", name)
			}
			return rule, parsed, nil
		}
	}
	return nil, nil, fmt.Errorf("--config: %s has no rule %.80q, but %s%s", file, name, strings.Join(names, ", "), meant(name, names))
}

// checkKey checks that a rule can have the key of an override. Errors wrap [errUsage].
func checkKey(rule *config.Rule, o *server.Override) error {
	if o.Pattern == "" || len(rule.Key) != len(o.Key) {
		if err := named.Check(rule, o.Key); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return nil
	}
	network, err := netip.ParsePrefix(o.Key[o.Part])
	s := &rule.Key[o.Part]
	most := s.IPv4Prefix
	if network.Addr().Is6() {
		most = s.IPv6Prefix
	}
	switch {
	case (s.Kind == config.SelectClientIP) != (o.Pattern == "network"):
		return fmt.Errorf("%w: want --network for a value of %s that is a client address, and --prefix or --suffix for any other", errUsage, rule.Name)
	case s.Kind == config.SelectClientIP && (err != nil || network.Bits() > most):
		return fmt.Errorf("%w: --network: want a network of at most %d bits for %s, such as 10.0.0.0/8, got %.80q", errUsage, most, rule.Name, o.Key[o.Part])
	}
	return nil
}

// toldRule reports whether nodes have told of a rule in the last month, whether or not it has requests.
func (f *backendFlags) toldRule(ctx context.Context, namespace, name string) bool {
	rules, err := f.known(ctx, namespace)
	return err == nil && slices.ContainsFunc(rules, func(r server.KnownRule) bool { return r.Rule == name })
}

var errOthers = errors.New("no node has seen a request of rule")

// knownRule returns an error if no node has recently reported a rule. Nodes report the rules that
// requests matched in the last minute or two.
func (f *backendFlags) knownRule(ctx context.Context, namespace, name string) error {
	top, err := get[server.Top](ctx, f, server.TopPath, url.Values{"namespace": {namespace}})
	if err != nil {
		return err
	}
	var names []string
	for _, r := range top.Rules {
		if names = append(names, r.Rule); r.Rule == name {
			return nil
		}
	}
	switch {
	case top.Nodes == 0:
		return fmt.Errorf("no node of namespace %s has reported in the last half minute", namespace)
	case len(names) == 0:
		return errors.New("no node has seen a request of any rule in the last two minutes")
	}
	return fmt.Errorf("%w %.80q in the last two minutes, but of %s%s", errOthers, name, strings.Join(names, ", "), meant(name, names))
}

// meant returns a question for a name that may have been meant.
func meant(name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}
