package main

import (
	"cmp"
	"context"
	"encoding/hex"
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
	"text/tabwriter"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/counter"
	"weir/internal/named"
	"weir/internal/server"
	"weir/window"
)

const counterUsage = `get NAMESPACE RULE VALUE… | reset NAMESPACE RULE VALUE… | grant NAMESPACE RULE VALUE… HITS

  weir counter get shop per-user ann
  weir counter reset shop per-user ann --wait 5s
  weir counter grant shop per-user ann 500

get shows what all nodes together have counted for a key. reset empties the key's counter. grant gives
HITS back, so that this number of further hits passes now, up to the whole limit. Both last until the
window ends: for another limit, see weir override. Values are those of the rule's key, as requests have
them; a rule without a key takes none. Limits, and which part of a client address counts, are what the proxies
have told weir serve. The proxies' configuration in --config has the secret, too, and the limits of single
keys. Flags may come anywhere.
`

type counterCommand struct {
	out     io.Writer
	backend backendFlags
	secret  secret
	config  string
	keys    values
	json    bool
	none    bool // --allow-none: it is no error if nothing is counted

	namespace, rule string
	key             []string
	id              string
	limits          []window.Limit // none if there is no configuration
	listed          bool           // whether the configuration has the key
	whole           []string       // the key as the configuration's overrides have it; nil without one
	fair            bool           // whether keys share the counter evenly
}

// defineKey defines the flags that say which key is meant.
func (c *counterCommand) defineKey(flags *flag.FlagSet) {
	c.secret.define(flags, "key-secret", "the proxies' backend.key_secret, if they have one; better given as WEIR_KEY_SECRET or in a file", "`file` with the secret")
	flags.Func("key", "a `value` of the key, in the place of VALUE: if it begins with -; once for each value", c.keys.Set)
}

func counterOf(ctx context.Context, args []string, env environment) error {
	c := counterCommand{out: env.stdout}
	flags := flag.NewFlagSet("counter", flag.ContinueOnError)
	c.backend.changing(flags)
	c.defineKey(flags)
	flags.StringVar(&c.config, "config", "", configUsage)
	flags.BoolVar(&c.json, "json", false, "get as JSON")
	flags.BoolVar(&c.none, "allow-none", false, "do not fail if nothing is counted for the key; reset then tells nodes all the same")
	operands, err := c.backend.parse(flags, args, env, counterUsage, 3, math.MaxInt, "get, reset or grant, then NAMESPACE RULE VALUE…")
	if err != nil {
		return err
	}
	verb := operands[0]
	c.namespace, c.rule, c.key = operands[1], operands[2], operands[3:]
	hits := uint64(0)
	switch verb {
	case "get":
	case "reset", "grant":
		if c.json {
			return fmt.Errorf("%w: want --json with get", errUsage)
		}
	default:
		return fmt.Errorf("%w: want get, reset or grant, got %.80q", errUsage, verb)
	}
	if verb == "get" && c.backend.wait != 0 {
		return fmt.Errorf("%w: want --wait with reset or grant", errUsage)
	}
	if verb == "grant" {
		if len(c.key) > 0 {
			last := len(c.key) - 1
			hits, err = strconv.ParseUint(c.key[last], 10, 64)
			c.key = c.key[:last]
		}
		if err != nil || hits == 0 || hits > window.MaxLimit {
			return fmt.Errorf("%w: want NAMESPACE RULE VALUE… and then how many hits to give back, 1 to %d", errUsage, uint64(window.MaxLimit))
		}
	}
	if err := c.find(ctx, env); err != nil {
		return err
	}
	if verb == "get" {
		return c.get(ctx)
	}
	return c.change(ctx, &server.CounterChange{ID: c.id, Rule: c.rule, Key: c.key, Reset: verb == "reset", Grant: hits})
}

// find computes the name by which the backend knows the key.
func (c *counterCommand) find(ctx context.Context, env environment) error {
	key, err := c.keys.or(c.key)
	if err != nil {
		return err
	}
	c.key = key
	secret, err := c.secret.read(env)
	if err != nil {
		return err
	}
	var selectors []config.Selector
	if c.config != "" {
		rule, parsed, err := configuredRule(c.config, c.namespace, c.rule, env)
		if err == nil {
			err = checkKey(rule, &server.Override{Key: c.key})
		}
		if err != nil {
			return err
		}
		secret = cmp.Or(secret, parsed.Backend.KeySecret)
		selectors, c.limits, c.fair, c.whole = rule.Key, rule.Limits, rule.Fair(), named.Whole(rule, c.key)
		for _, o := range rule.Overrides.Keys {
			if slices.Equal(o.Key, c.whole[:len(o.Key)]) {
				c.limits, c.listed = o.Limits, true
			}
		}
	} else if selectors, err = c.told(ctx); err != nil {
		return err
	}
	return c.identify(secret, selectors)
}

// identify computes the name by the form of the key.
func (c *counterCommand) identify(secret string, selectors []config.Selector) error {
	if secret != "" && len(secret) < config.MinKeySecret {
		return fmt.Errorf("%w: --key-secret: want %d characters or more", errUsage, config.MinKeySecret)
	}
	identities := counter.NewIdentities(secret)
	id := named.Identity(&identities, c.rule, selectors, c.key)
	c.id = hex.EncodeToString(id[:])
	return nil
}

// told returns what nodes have told of the rule's key, without their configuration; nil if nobody has.
func (c *counterCommand) told(ctx context.Context) (selectors []config.Selector, err error) {
	rules, err := c.backend.known(ctx, c.namespace)
	if errors.As(err, &refusal{}) {
		err = nil // an older backend, or the next call says why
	}
	for _, r := range rules {
		if r.Rule == c.rule && r.Key != nil {
			rule := toldKey(&r)
			c.fair = r.Fair
			return rule.Key, checkKey(&rule, &server.Override{Key: c.key})
		}
	}
	return nil, err
}

// toldKey returns a rule with as much of its key as nodes have told.
func toldKey(r *server.KnownRule) config.Rule {
	rule := config.Rule{Name: r.Rule, Key: make([]config.Selector, len(r.Key))}
	for at, k := range r.Key {
		if k.ClientIP != nil {
			rule.Key[at] = config.Selector{Kind: config.SelectClientIP, IPv4Prefix: k.ClientIP.IPv4, IPv6Prefix: k.ClientIP.IPv6}
		}
	}
	if last := len(r.Key) - 1; r.Classes && last >= 0 {
		rule.Key, rule.Classes = rule.Key[:last], &config.Classes{Fair: r.Fair}
	}
	return rule
}

// ask returns the counter as it stands now.
func (c *counterCommand) ask(ctx context.Context) (found server.Counter, err error) {
	now := time.Now().UnixNano()
	query := url.Values{"namespace": {c.namespace}, "id": {c.id}, "rule": {c.rule}, "key": c.key}
	if c.whole != nil {
		query["key"] = c.whole
	}
	for _, l := range c.limits {
		query.Add("limit", fmt.Sprintf("%s/%d/%d/%d/%d/%d", l.Name(), l.WidthAt(now)/window.MinWidth, l.Precision, l.Ordinal, l.Max, l.Burst))
	}
	if found, err = get[server.Counter](ctx, &c.backend, server.CounterPath, query); err == nil {
		found.Date(c.limits, now)
	}
	return found, err
}

func (c *counterCommand) get(ctx context.Context) error {
	found, err := c.ask(ctx)
	switch {
	case err != nil:
	case c.json:
		err = json.NewEncoder(c.out).Encode(found)
	default:
		c.show(&found, "nobody has hit it in a window that counts")
	}
	if err != nil {
		return err
	}
	return c.missing(ctx, &found)
}

// missing returns an error, with a possible reason, if the backend has no counter of the key.
func (c *counterCommand) missing(ctx context.Context, found *server.Counter) error {
	used := slices.ContainsFunc(found.Limits, func(l backend.CounterLimit) bool { return l.Used > 0 })
	if used || found.Known || found.Override != nil || c.listed || c.none {
		return nil
	}
	reason := "a value or the secret may be wrong"
	if c.config == "" {
		if err := c.backend.knownRule(ctx, c.namespace, c.rule); err != nil {
			reason = err.Error()
		}
	}
	return fmt.Errorf("nothing is counted for this key of %.80q: %s; with --allow-none that is no mistake", c.rule, reason)
}

func (c *counterCommand) change(ctx context.Context, change *server.CounterChange) error {
	before, err := c.ask(ctx)
	if err == nil {
		err = c.missing(ctx, &before)
	}
	if err != nil {
		return err
	}
	var changed server.CounterChanged
	if err := c.backend.call(ctx, http.MethodPost, server.CounterPath, url.Values{"namespace": {c.namespace}}, change, &changed); err != nil {
		return err
	}
	lifted := change.Reset && slices.ContainsFunc(before.Limits, func(l backend.CounterLimit) bool { return l.Algorithm == block && l.Used > 0 })
	if changed.Returned > 0 {
		fmt.Fprintf(c.out, "%d given back\n", changed.Returned)
	} else if !lifted {
		fmt.Fprintln(c.out, "nothing was counted")
	}
	if lifted {
		fmt.Fprintln(c.out, "the block is lifted")
	}
	found, err := c.ask(ctx)
	if err != nil {
		return err
	}
	c.show(&found, "nothing is counted now")
	if c.fair {
		fmt.Fprintln(c.out, "a key that has had its even part, which its proxies count, has room from its next window on")
	}
	_, err = c.backend.tell(ctx, c.out, c.namespace, changed.Version, c.backend.wait, true)
	return err
}

// usedText says how much of a limit is used, leased and pending. limit is empty or begins with of.
func usedText(l *backend.CounterLimit, limit string) string {
	text := fmt.Sprintf("%d%s used", l.Used-min(l.Used, l.Leased), limit)
	if l.Leased > 0 {
		text += fmt.Sprintf(", %d leased", l.Leased)
	}
	if l.Pending > 0 {
		text += fmt.Sprintf(", up to %d pending", l.Pending)
	}
	return text
}

// inFlight is the name of the algorithm whose hits are places held by requests.
var inFlight = window.Shape{Kind: window.InFlight}.Name()

// block is the name of a block in the counter of a key that stays refused.
var block = window.Shape{Kind: window.Block}.Name()

// slidingWindow is the name of the algorithm whose hits still weigh when their window is over.
var slidingWindow = window.Shape{Kind: window.SlidingWindow}.Name()

// ends says when a counter that has such a time is free, or begins its next window.
func ends(l *backend.CounterLimit) string {
	what := "free"
	if l.Algorithm == slidingWindow && l.PrecisionNS == 0 {
		what = "next window"
	}
	return fmt.Sprintf("%s in %v", what, time.Duration(*l.ResetMS)*time.Millisecond)
}

// show prints a counter, a limit per line, or unused if nothing is used.
func (c *counterCommand) show(found *server.Counter, unused string) {
	used, known := false, true
	for _, l := range found.Limits {
		used = used || l.Used > 0
		span := fmt.Sprint(config.Duration(l.WidthMS) * config.Millisecond)
		if l.Period != "" {
			span = "a " + l.Period
		}
		fmt.Fprint(c.out, strings.ReplaceAll(l.Algorithm, "_", " "))
		if held := l.Algorithm == inFlight; held {
			l.ResetMS = nil // it is not known when requests end
		} else {
			fmt.Fprint(c.out, " of ", span)
		}
		fmt.Fprint(c.out, ": ")
		if l.Algorithm == block {
			fmt.Fprint(c.out, "refused whatever room there is")
		} else if l.Limit == nil {
			known = false
			fmt.Fprint(c.out, usedText(&l, ""))
		} else {
			fmt.Fprintf(c.out, "%s, %d left", usedText(&l, fmt.Sprint(" of ", most(&l))), *l.Left)
			if *l.Left == 0 {
				fmt.Fprintf(c.out, ", room %s", room(&l))
			}
		}
		if l.ResetMS != nil {
			fmt.Fprint(c.out, ", ", ends(&l))
		}
		fmt.Fprintln(c.out)
	}
	if slices.ContainsFunc(found.Limits, func(l backend.CounterLimit) bool { return l.Leased > 0 }) {
		fmt.Fprintln(c.out, "  leased: some seconds ago proxies had taken these for requests to come, beside those that are used")
	}
	if slices.ContainsFunc(found.Limits, func(l backend.CounterLimit) bool { return l.Pending > 0 }) {
		fmt.Fprintln(c.out, "  pending: passed at proxies, which count them here at their next push, within their sync_rate")
	}
	for _, h := range found.Holders {
		fmt.Fprintf(c.out, "  node %s holds %d, the oldest for %v\n", h.Node, h.Places, time.Duration(h.OldestMS)*time.Millisecond)
	}
	if !used {
		fmt.Fprintln(c.out, unused)
	}
	if found.Override != nil {
		fmt.Fprintln(c.out, "override:", describeOverride(found.Override))
	}
	if found.Mode != "" {
		fmt.Fprintf(c.out, "mode: %s, as weir rule show %s tells\n", found.Mode, c.namespace)
	}
	switch {
	case !known:
		fmt.Fprintln(c.out, "no proxy has told the limits: with --config, the hits left are shown too")
	case found.Varies:
		fmt.Fprintln(c.out, "some keys of this rule have other limits by the configuration: with --config, those of this key are shown")
	}
}

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
	var failed []error
	for i, r := range rules {
		now, limits, err := c.why(ctx, &r, secret, values)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", word(r.Rule), err))
			if !errors.As(err, &trouble{}) {
				break
			}
			now, limits = "not known", "the backend could not tell"
		}
		if now != otherKey {
			asked++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", word(r.Rule), now, limits)
		if len(failed) == mostTroubles && i < len(rules)-1 {
			failed = append(failed, errors.New("the rules after it are not asked"))
			break
		}
	}
	if asked == 0 && failed == nil {
		return fmt.Errorf("no proxy has told a rule of %.80q that has this key of %d values: weir namespaces %s lists the rules", c.namespace, len(values), c.namespace)
	}
	return errors.Join(append(failed, w.Flush())...)
}

// mostTroubles is how many counters may be out of reach before no more are asked: each may take seconds.
const mostTroubles = 5

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
				text += ", " + ends(l)
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
