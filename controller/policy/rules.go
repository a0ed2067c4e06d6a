package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"weir/config"
)

const (
	maxName     = 64  // of a rule, in bytes
	maxRules    = 256 // of a configuration
	maxDocument = 900_000
	maxAny      = 64       // of a match
	maxTold     = 10       // mistakes and places in a message
	maxPolicy   = 64 << 10 // bytes of a policy's rules
	// Of a Gateway. Envoy Gateway has all plugins in one object.
	maxPlugins      = 16
	maxEnvoyGateway = 1_000_000
	maxIstio        = 4_000_000
)

// Planner plans. It remembers the policies that it has checked. A Planner must be used by one goroutine at a time.
type Planner struct {
	// base is the configuration without its rules.
	base    map[string]json.RawMessage
	checked map[types.UID]checked
	// sound says which documents the plugin takes, of this plan and the last.
	sound, before map[[sha256.Size]byte]bool
	// Told gets the rules that are in force at each place of a Gateway, unless it is nil. The place * has requests without a route.
	Told func(g *Gateway, place string, rules []Rule)
}

// Rule is a rule that is in force somewhere.
type Rule struct {
	Policy types.NamespacedName
	Name   string
	Limits json.RawMessage
}

func (p *Planner) tell(g *Gateway, place string, rules []*rule) {
	if p.Told == nil {
		return
	}
	var all []Rule
	for _, r := range rules {
		all = append(all, Rule{nameOf(r.of.Policy), r.name, r.fields["limits"]})
	}
	p.Told(g, place, all)
}

// checked is a spec that was read, with the rules that hold: its own, or if it is refused those of the last one that was not.
type checked struct {
	generation int64
	rules      []*rule
	refused    string
	inForce    *InForce
}

type rule struct {
	name   string // in the policy
	fields map[string]json.RawMessage
	of     *Outcome
	// where is where it holds at a Gateway; size are the bytes of the rule with that.
	where *where
	size  int
}

// NewPlanner returns a planner whose plugins all have a configuration, which has no rules and no namespace: counters are
// those of the Gateway's namespace.
func NewPlanner(base []byte) (*Planner, error) {
	p := &Planner{checked: map[types.UID]checked{}}
	if err := json.Unmarshal(base, &p.base); err != nil {
		return nil, err
	}
	for _, field := range []string{"rules", "namespace"} {
		if _, there := p.base[field]; there {
			return nil, fmt.Errorf("%s: want none, because policies have it", field)
		}
	}
	_, err := config.Parse(p.document("default", []json.RawMessage{[]byte(`{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}`)}))
	return p, err
}

func (p *Planner) document(namespace string, rules any) []byte {
	fields := map[string]any{"namespace": namespace, "rules": rules}
	for name, value := range p.base {
		fields[name] = value
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return []byte(err.Error()) // a raw message that is no JSON: the parser refuses it
	}
	if _, there := fields["replicas"]; there && !shares(text) {
		delete(fields, "replicas") // the parser wants it beside limits that are divided alone
		text, _ = json.Marshal(fields)
	}
	return text
}

// shares reports whether a rule of a document has its limits divided.
func shares(text []byte) bool {
	type rated struct {
		Rate any `json:"sync_rate"`
	}
	var c struct {
		rated
		Rules []rated
	}
	_ = json.Unmarshal(text, &c) // the parser tells what is wrong
	return slices.ContainsFunc(c.Rules, func(r rated) bool {
		return r.Rate == "share" || r.Rate == nil && c.Rate == "share"
	})
}

// outcome reads a policy. If it is refused, what was accepted before stays in force.
func (p *Planner) outcome(policy *RateLimitPolicy, resources *Resources) *Outcome {
	this, known := p.checked[policy.UID]
	if !known || this.generation != policy.Generation {
		last := this // the status may lack it: it is written after the plan
		this = p.check(policy, &policy.Spec)
		switch before := policy.Status.InForce; {
		case this.refused == "":
			this.inForce = &InForce{policy.Generation, policy.Spec}
		case last.inForce != nil:
			this.inForce, this.rules = last.inForce, last.rules
		case before != nil:
			if last = p.check(policy, &before.Spec); last.refused == "" {
				this.inForce, this.rules = before, last.rules
			}
		}
		this.generation = policy.Generation
		p.checked[policy.UID] = this
	}
	o := &Outcome{Policy: policy, InForce: this.inForce, Refused: this.refused}
	if o.Refused != "" {
		o.Reason = "Invalid"
	}
	if o.InForce == nil {
		return o
	}
	resources.grant(o)
	for _, r := range this.rules {
		fields := r.fields
		if o.counters != "" {
			fields = maps.Clone(fields)
			fields["name"] = encoded(r.name) // the same as others of that namespace have
		}
		o.rules = append(o.rules, &rule{name: r.name, fields: fields, of: o, size: r.size})
	}
	return o
}

// grant gives a policy the namespace of counters that it asks for. Without the grant its counters stay its own.
func (r *Resources) grant(o *Outcome) {
	switch name := o.InForce.Spec.Counters; {
	case name == "":
	case !slices.Contains(r.Counters[o.Policy.Namespace], name):
		o.miss("", fmt.Sprintf("spec.counters: want %s in the annotation %s of Namespace %s: counters are the policy's own", name, CountersAnnotation, o.Policy.Namespace))
	case slices.ContainsFunc(r.Gateways, func(g *Gateway) bool { return g.Namespace == name }):
		o.miss("", fmt.Sprintf("spec.counters: want another name than %s, which has counters of a Gateway's policies: counters are the policy's own", name))
	default:
		o.counters = name
	}
}

// CountersAnnotation of a Namespace has the namespaces of counters that its policies may name, with commas between.
const CountersAnnotation = "weir.dev/counters"

// check reads a policy's rules as the plugin would, in the form that they get at a route.
func (p *Planner) check(policy *RateLimitPolicy, spec *Spec) (c checked) {
	if strings.Contains(policy.Name, ".") {
		c.refused = "metadata.name: want a name without a dot, as rules have it in theirs"
		return c
	}
	block, path, _ := spec.block()
	size := 0
	for _, raw := range block.Rules {
		size += len(raw)
	}
	if size > maxPolicy {
		c.refused = fmt.Sprintf("%srules: want at most %d bytes, got %d", path, maxPolicy, size)
		return c
	}
	if _, err := config.Parse(p.document(cmp.Or(spec.Counters, "default"), block.Rules)); err != nil {
		c.refused = told(err, path)
		return c
	}
	var trial []map[string]json.RawMessage
	for _, raw := range block.Rules {
		r := &rule{}
		var name string
		if err := errors.Join(json.Unmarshal(raw, &r.fields), json.Unmarshal(r.fields["name"], &name)); err != nil {
			c.refused = err.Error()
			return c
		}
		r.name = name
		r.fields["name"] = encoded(RuleName(policy.Namespace, policy.Name, name))
		r.size = len(encoded(r.fields))
		c.rules = append(c.rules, r)
		attached := *r
		for _, attached.where = range []*where{{condition: deepest}, {condition: deepest, excepting: true}} {
			attached.fields = attached.placed()
		}
		trial = append(trial, attached.fields)
	}
	if _, err := config.Parse(p.document("default", trial)); err != nil {
		c.refused = "attached to a route: " + told(err, path)
	}
	return c
}

func told(err error, path string) string {
	var mistakes config.Errors
	if !errors.As(err, &mistakes) {
		return err.Error()
	}
	var lines []string
	for i, e := range mistakes {
		if i == maxTold {
			lines = append(lines, strconv.Itoa(len(mistakes)-maxTold)+" more")
			break
		}
		if strings.HasPrefix(e.Path, "rules") {
			e.Path = path + e.Path
		} else if e.Path == "namespace" {
			e.Path = "spec.counters"
		}
		lines = append(lines, e.Error())
	}
	return strings.Join(lines, "; ")
}

// RuleName is the name that a policy's rule has in the plugin, in headers and in metrics. No two rules of all policies have
// the same: a namespace and a policy have no underscore.
func RuleName(namespace, policy, rule string) string {
	name := namespace + "_" + policy + "_" + rule
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	const digits = 16
	return name[:maxName-digits-1] + "_" + hex.EncodeToString(sum[:digits/2])
}

func encoded(v any) json.RawMessage {
	text, _ := json.Marshal(v) // of maps, lists and strings: never fails
	return text
}

// placed are the rule's fields with where it holds.
func (r *rule) placed() map[string]json.RawMessage {
	if r.where == nil || r.where.condition == nil {
		return r.fields
	}
	fields := maps.Clone(r.fields)
	if r.where.excepting {
		var except []json.RawMessage
		_ = json.Unmarshal(fields["except"], &except) // the parser has read it
		fields["except"] = encoded(append(except, encoded(map[string]any{"any": r.where.condition})))
		return fields
	}
	match := map[string]json.RawMessage{}
	_ = json.Unmarshal(fields["match"], &match) // the parser has read it
	if _, taken := match["any"]; taken {
		match = map[string]json.RawMessage{"not": encoded(map[string]any{"not": match})}
	}
	match["any"] = r.where.condition
	fields["match"] = encoded(match)
	return fields
}

// deepest is as deep as the condition of many parts within one another: a listener's, a namespace's, a route's and a rule's.
var deepest = func() json.RawMessage {
	group := func(some []any) map[string]any { return map[string]any{"any": some} }
	some := []any{group([]any{group([]any{map[string]any{"host": host("*.x")}})})}
	for range levels - ofListener {
		some = []any{map[string]any{"not": group([]any{group([]any{group(some)})})}}
	}
	return encoded(some)
}()

// grouped makes a list short enough for a field any.
func grouped(some []any) []any {
	for len(some) > maxAny {
		var groups []any
		for group := range slices.Chunk(some, maxAny) {
			groups = append(groups, map[string]any{"any": group})
		}
		some = groups
	}
	return some
}

// document is a configuration of a plugin, with its rules.
type document struct {
	text    []byte
	size    int // of the text, or of the rules before there is one
	rules   []*rule
	refused error // what the plugin says of its only rule
}

// appendSound appends the configuration of rules, or several where the plugin would refuse one: some bounds are those
// of all rules together.
func (p *Planner) appendSound(documents []document, namespace string, rules []*rule) []document {
	if len(rules) == 0 {
		return documents
	}
	fields := make([]map[string]json.RawMessage, len(rules))
	for i, r := range rules {
		fields[i] = r.placed()
	}
	d := document{text: p.document(cmp.Or(rules[0].of.counters, namespace), fields), rules: rules}
	d.size = len(d.text)
	sum := sha256.Sum256(d.text)
	sound, known := p.sound[sum]
	if !known {
		sound, known = p.before[sum]
	}
	if !known || !sound && len(rules) == 1 {
		_, d.refused = config.Parse(d.text)
		sound = d.refused == nil
	}
	if p.sound[sum] = sound; !sound && len(rules) > 1 {
		documents = p.appendSound(documents, namespace, rules[:len(rules)/2])
		return p.appendSound(documents, namespace, rules[len(rules)/2:])
	}
	return append(documents, d)
}

// divided splits rules among as few plugins as can have them: each has one namespace of counters. Requests pass through all of
// them.
func divided(rules []*rule) (groups []document) {
	slices.SortStableFunc(rules, func(a, b *rule) int { return cmp.Compare(a.of.counters, b.of.counters) })
	for _, r := range rules {
		if n := len(groups) - 1; n < 0 || len(groups[n].rules) == maxRules || groups[n].size+r.size > maxDocument || groups[n].rules[0].of.counters != r.of.counters {
			groups = append(groups, document{})
		}
		last := &groups[len(groups)-1]
		last.rules, last.size = append(last.rules, r), last.size+r.size
	}
	return groups
}
