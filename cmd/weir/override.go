package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/calendar"
	"weir/internal/named"
	"weir/internal/server"
	"weir/internal/wire"
	"weir/window"
)

const overrideUsage = `set NAMESPACE RULE VALUE… LIMIT/WINDOW… | list NAMESPACE [RULE] | unset NAMESPACE RULE VALUE…

  weir override set shop per-user ann 1000/1m --until 6h --reason "import of the catalogue"
  weir override set shop per-user ann 1000/1m 20000/1d --wait 5s
  weir override set shop per-key --prefix sk-trial- 10/1m
  weir override set shop per-plan-address --key gold --network 10.0.0.0/8 5000/1m
  weir override list shop
  weir override unset shop per-user ann

An override replaces each limit of the rule by a limit with the same window: LIMIT/WINDOW, such as
1000/1m or 100000/month, LIMIT/WINDOW/BURST for a token bucket, or LIMIT/in_flight. Values are those of
the rule's key, as requests have them; a rule without a key takes none. Counters stay as they are. Flags
may come anywhere.
--prefix, --suffix or --network in the place of one value is for all keys that have such a value; the
other values are given by --key, in the order of the key. Each of these keys has the limits for itself. What
is set for a key alone goes first, then the longest prefix, suffix or network, then weir rule.
set fails and changes nothing if the rule has other windows or another key at the nodes. It also fails
if no node has told of the rule in the last minutes, because it has had no requests, for example: then
--config checks the override by the proxies' configuration, and --force sets it unchecked.
`

func override(ctx context.Context, args []string, env environment) error {
	var c overrideCommand
	flags := flag.NewFlagSet("override", flag.ContinueOnError)
	c.define(flags)
	flags.Func("key", "a `value` of the key, in the place of VALUE: if it begins with - or looks like a limit; once for each value", c.keys.Set)
	pattern := func(name, usage string) {
		flags.Func(name, usage, func(text string) error {
			if c.pattern != "" {
				return errors.New("want a single prefix, suffix or network")
			}
			c.pattern, c.part = name, len(c.keys)
			return c.keys.Set(text)
		})
	}
	pattern("prefix", "the `beginning` of a value of the key, as --key: for all keys with such a value")
	pattern("suffix", "the `end` of a value of the key, as --key")
	pattern("network", "a `network` of client addresses, such as 10.0.0.0/8, as --key")
	flags.BoolVar(&c.all, "all", false, "unset all overrides of the rule")
	flags.BoolVar(&c.json, "json", false, "list as JSON")
	operands, err := c.backend.parse(flags, args, env, overrideUsage, 2, math.MaxInt, "set, list or unset, and a namespace")
	if err != nil {
		return err
	}
	c.out, c.env, c.namespace = env.stdout, env, operands[1]
	do := map[string]func(ctx context.Context, operands []string) error{"set": c.set, "list": c.list, "unset": c.unset}[operands[0]]
	if do == nil {
		return fmt.Errorf("%w: want set, list or unset, got %.80q", errUsage, operands[0])
	}
	return do(ctx, operands[2:])
}

type overrideCommand struct {
	out       io.Writer
	env       environment
	backend   backendFlags
	namespace string
	until     moment
	keys      values
	pattern   string // of keys[part]
	part      int
	all, json bool
	config    string
	force     bool
}

func (c *overrideCommand) define(flags *flag.FlagSet) {
	c.backend.changing(flags)
	flags.Func("until", "`time` at which it ends: a day, which begins at 0:00 UTC, a time such as 2026-12-01T08:30:00Z, or a duration from now such as 6h", c.until.Set)
	flags.StringVar(&c.config, "config", "", "check it by this "+configUsage)
	flags.BoolVar(&c.force, "force", false, "set it whether or not a node has told of such a rule")
}

func (c *overrideCommand) set(ctx context.Context, operands []string) error {
	var o server.Override
	if len(operands) > 0 {
		o.Rule, operands = operands[0], operands[1:]
	}
	for len(operands) > 0 {
		l, ok := parseOverrideLimit(operands[len(operands)-1])
		if !ok {
			break
		}
		o.Limits = append([]server.OverrideLimit{l}, o.Limits...)
		operands = operands[:len(operands)-1]
	}
	switch {
	case o.Rule == "" || len(o.Limits) == 0:
		return fmt.Errorf("%w: want NAMESPACE RULE VALUE… and then a LIMIT/WINDOW, such as 1000/1m, for each limit of the rule", errUsage)
	case c.all || c.json:
		return fmt.Errorf("%w: want --all with unset, and --json with list", errUsage)
	}
	var err error
	if o.Key, err = c.keys.or(operands); err != nil {
		return err
	}
	o.Pattern, o.Part = c.pattern, c.part
	return c.put(ctx, &o)
}

// put sets an override that can apply, or none.
func (c *overrideCommand) put(ctx context.Context, o *server.Override) error {
	if at := time.Time(c.until); !at.IsZero() {
		o.Until = &at
		if !at.After(time.Now()) {
			return fmt.Errorf("%w: --until: want a time to come, got %s", errUsage, at.Format(time.RFC3339))
		}
	}
	before, err := c.check(ctx, o)
	if err != nil {
		return err
	}
	query := url.Values{"namespace": {c.namespace}}
	if c.force || c.config != "" {
		query.Set("force", "")
	}
	changed, err := c.send(ctx, query, o)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.out, describeOverride(o))
	// Nodes report that they can't apply it once they hear of it.
	after, err := c.backend.tell(ctx, c.out, c.namespace, changed.Version, cmp.Or(c.backend.wait, patience), c.backend.wait > 0)
	if err != nil {
		return err
	}
	unfit := "nodes can't apply it: %s has other limits there, or other windows"
	if o.Mode == "" {
		unfit += ", or another key"
	}
	switch {
	case after.Unfit <= before.Unfit:
		return nil
	case (o.Mode != "" || o.Pattern != "") && after.Unfitting < after.Knowing:
		// Nodes of v0.1 go on by their configuration, and the others do as they are told.
		return nil
	case c.force:
		return fmt.Errorf("it is set, but "+unfit, o.Rule)
	}
	if err := c.restore(ctx, o, before.Overrides); err != nil {
		return fmt.Errorf(unfit+", and it could not be taken back: %w", o.Rule, err)
	}
	return fmt.Errorf("it is taken back, as "+unfit, o.Rule)
}

// restore puts the override that a key had before in the place of another, or none.
func (c *overrideCommand) restore(ctx context.Context, of *server.Override, before []server.Override) error {
	query := url.Values{"namespace": {c.namespace}, "force": {""}}
	key := slices.Clone(of.Key)
	if of.Pattern == "network" {
		network, err := netip.ParsePrefix(key[of.Part])
		if err != nil {
			return err
		}
		key[of.Part] = network.Masked().String() // as the backend has it
	}
	for _, o := range before {
		if o.Rule == of.Rule && slices.Equal(o.Key, key) && o.Pattern == of.Pattern && o.Part == of.Part && (o.Mode == "") == (of.Mode == "") {
			_, err := c.send(ctx, query, &o)
			return err
		}
	}
	query = c.query(of.Rule, of.Key)
	if of.Mode != "" {
		query.Set("whole", "")
	}
	return c.backend.call(ctx, http.MethodDelete, wire.OverridesPath, query, nil, new(server.Changed))
}

// send sets an override.
func (c *overrideCommand) send(ctx context.Context, query url.Values, o *server.Override) (changed server.Changed, err error) {
	err = c.backend.call(ctx, http.MethodPut, wire.OverridesPath, query, map[string][]*server.Override{"overrides": {o}}, &changed)
	return changed, err
}

// query names the override of a key, or of those with the command line's pattern.
func (c *overrideCommand) query(rule string, key []string) url.Values {
	query := url.Values{"namespace": {c.namespace}, "rule": {rule}, "key": key}
	if c.pattern != "" {
		query["pattern"], query["part"] = []string{c.pattern}, []string{strconv.Itoa(c.part)}
	}
	return query
}

// check returns an error if no known rule fits an override. It also returns the overrides before
// the change.
func (c *overrideCommand) check(ctx context.Context, o *server.Override) (before server.Overrides, err error) {
	if c.config != "" {
		rule, _, err := configuredRule(c.config, c.namespace, o.Rule, c.env)
		if err == nil && o.Mode == "" {
			err = checkKey(rule, o)
		}
		if err != nil {
			return before, err
		}
		if (o.Mode == "" || len(o.Limits) > 0) && !wire.Fits(rule.Limits, o.WireLimits()) {
			return before, fmt.Errorf("%w: want a limit for each limit of the rule, with its windows and bursts such as%s, got%s", errUsage,
				describeLimits(limitsOf(rule)), describeLimits(o.Limits))
		}
	}
	if before, err = get[server.Overrides](ctx, &c.backend, wire.OverridesPath, url.Values{"namespace": {c.namespace}, "rule": {o.Rule}}); err != nil {
		return before, err
	}
	// The backend compares windows with those of overrides in force. A mode fits every rule that was known
	// before.
	compares := func(by server.Override) bool { return len(o.Limits) == 0 || len(by.Limits) > 0 }
	if o.Rule == wire.AllRules && before.Nodes == 0 && !c.force {
		return before, fmt.Errorf("no node of namespace %s has reported in the last minute; --force sets it all the same", c.namespace)
	}
	if o.Rule == wire.AllRules || c.config != "" || c.force || slices.ContainsFunc(before.Overrides, compares) {
		return before, nil
	}
	if len(o.Limits) == 0 && c.backend.toldRule(ctx, c.namespace, o.Rule) {
		return before, nil
	}
	if err := c.backend.knownRule(ctx, c.namespace, o.Rule); err != nil {
		return before, fmt.Errorf("%w; --config FILE checks it by the proxies' configuration, and --force sets it all the same", err)
	}
	return before, nil
}

// limitsOf returns a rule's limits in the form of an override.
func limitsOf(rule *config.Rule) (limits []server.OverrideLimit) {
	for _, l := range rule.Limits {
		limit := server.OverrideLimit{Limit: l.Max, WidthMS: uint64(l.Width / window.MinWidth)}
		if l.Kind.Bursts() {
			limit.Burst = l.Burst
		}
		limits = append(limits, limit)
	}
	return limits
}

func (c *overrideCommand) unset(ctx context.Context, operands []string) error {
	switch {
	case len(operands) == 0:
		return fmt.Errorf("%w: want NAMESPACE RULE VALUE…", errUsage)
	case c.all && len(operands)+len(c.keys) > 1:
		return fmt.Errorf("%w: --all: want it without values", errUsage)
	case !time.Time(c.until).IsZero() || c.json:
		return fmt.Errorf("%w: want --until with set, and --json with list", errUsage)
	}
	key, err := c.keys.or(operands[1:])
	if err != nil {
		return err
	}
	query := c.query(operands[0], key)
	if c.all {
		query.Set("all", "")
	}
	return c.backend.remove(ctx, c.out, wire.OverridesPath, query, fmt.Errorf("there is no such override of %s", operands[0]))
}

func (c *overrideCommand) list(ctx context.Context, operands []string) error {
	if len(operands) > 1 || c.all || c.backend.wait != 0 || len(c.keys) > 0 || !time.Time(c.until).IsZero() {
		return fmt.Errorf("%w: want NAMESPACE, or NAMESPACE RULE, and no flag but --json and those of the backend", errUsage)
	}
	found, err := get[server.Overrides](ctx, &c.backend, wire.OverridesPath, queryOf(c.namespace, operands, "rule"))
	if err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(c.out).Encode(found)
	}
	for _, o := range found.Overrides {
		if o.Mode == "" {
			fmt.Fprintln(c.out, describeOverride(&o))
		}
	}
	fmt.Fprintln(c.out, reach(&found))
	return nil
}

// patience is how long set waits by default for nodes that can't apply an override.
const patience = 3 * time.Second

// describeOverride returns an override in one line.
func describeOverride(o *server.Override) string {
	text := o.Rule
	if o.Rule == wire.AllRules {
		text = "all rules"
	}
	if o.Mode != "" && o.Mode != wire.ModeNames[wire.Configured] {
		text += " " + o.Mode
	}
	for i, value := range o.Key {
		switch {
		case o.Pattern != "" && i == o.Part:
			text += " --" + o.Pattern
		case o.Pattern != "":
			text += " --key"
		}
		text += " " + word(value)
	}
	text += describeLimits(o.Limits)
	if o.Until != nil {
		text += " until " + o.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// describeLimits writes limits in the form of the command line, with a space before each.
func describeLimits(limits []server.OverrideLimit) (text string) {
	for _, l := range limits {
		text += fmt.Sprintf(" %d/%v", l.Limit, config.Duration(l.WidthMS)*config.Millisecond)
		if l.Burst != 0 {
			text += fmt.Sprintf("/%d", l.Burst)
		}
	}
	return text
}

// overriddenWindow returns the width of a window in overrides. For a calendar window that is its
// period's usual length.
func overriddenWindow(text string) (width time.Duration, ok bool) {
	if i := slices.Index(calendar.Periods, text); i >= 0 {
		return time.Duration(calendar.Lengths[i]), true
	}
	if inFlight := window.NewInFlight(0); text == inFlight.Name() {
		return time.Duration(inFlight.Width), true
	}
	of, ok := config.ParseDuration(text)
	return time.Duration(of.Milliseconds()) * time.Millisecond, ok
}

// parseOverrideLimit parses LIMIT/WINDOW or LIMIT/WINDOW/BURST.
func parseOverrideLimit(text string) (l server.OverrideLimit, ok bool) {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return l, false
	}
	limit, err := strconv.ParseUint(parts[0], 10, 64)
	width, ok := overriddenWindow(parts[1])
	if err != nil || !ok {
		return l, false
	}
	l.Limit, l.WidthMS = limit, uint64(width.Milliseconds())
	if len(parts) == 3 {
		l.Burst, err = strconv.ParseUint(parts[2], 10, 64)
	}
	return l, err == nil && (len(parts) == 2 || l.Burst > 0)
}

type moment time.Time

func (m *moment) Set(text string) error {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			*m = moment(at)
			return nil
		}
	}
	if from, ok := config.ParseDuration(text); ok && from > 0 {
		*m = moment(time.Now().Add(time.Duration(from.Milliseconds()) * time.Millisecond))
		return nil
	}
	return errors.New("want a day such as 2026-12-01, a time such as 2026-12-01T08:30:00Z, or a duration from now such as 6h")
}

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
	top, err := get[backend.Top](ctx, f, server.TopPath, url.Values{"namespace": {namespace}})
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
