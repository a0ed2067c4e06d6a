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
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/config"
	"weir/internal/calendar"
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
	body, err := json.Marshal(map[string][]server.Override{"overrides": {*o}})
	if err != nil {
		return err
	}
	before, err := c.check(ctx, o)
	if err != nil {
		return err
	}
	query := url.Values{"namespace": {c.namespace}}
	if c.force || c.config != "" {
		query.Set("force", "")
	}
	var changed server.Changed
	if err := c.call(ctx, http.MethodPut, query, body, &changed); err != nil {
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
	for _, o := range before {
		if o.Rule == of.Rule && slices.Equal(o.Key, of.Key) && o.Pattern == of.Pattern && o.Part == of.Part && (o.Mode == "") == (of.Mode == "") {
			body, err := json.Marshal(map[string][]server.Override{"overrides": {o}})
			if err != nil {
				return err
			}
			return c.call(ctx, http.MethodPut, query, body, new(server.Changed))
		}
	}
	query = c.query(of.Rule, of.Key)
	if of.Mode != "" {
		query.Set("whole", "")
	}
	return c.call(ctx, http.MethodDelete, query, nil, new(server.Changed))
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
	query := url.Values{"namespace": {c.namespace}}
	if len(operands) > 0 {
		query.Set("rule", operands[0])
	}
	found, err := get[server.Overrides](ctx, &c.backend, wire.OverridesPath, query)
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

// call calls the backend about overrides, and reads the answer into result.
func (c *overrideCommand) call(ctx context.Context, method string, query url.Values, body []byte, result any) error {
	return c.backend.call(ctx, method, wire.OverridesPath, query, body, result)
}

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
