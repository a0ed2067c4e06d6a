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

// checked is a spec that was read.
type checked struct {
	generation int64
	rules      []*rule
	refused    string
}

// rule is a rule of a policy.
type rule struct {
	name   string // in the policy
	fields map[string]json.RawMessage
	of     *Outcome
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
	o := &Outcome{Policy: policy}
	this, known := p.checked[policy.UID]
	if !known || this.generation != policy.Generation {
		this = p.check(policy, &policy.Spec)
		this.generation = policy.Generation
		p.checked[policy.UID] = this
	}
	rules := this.rules
	if this.refused == "" {
		o.InForce = &InForce{policy.Generation, policy.Spec}
	} else {
		o.Reason, o.Refused = "Invalid", this.refused
		if before := policy.Status.InForce; before != nil {
			if last := p.check(policy, &before.Spec); last.refused == "" {
				o.InForce, rules = before, last.rules
			}
		}
	}
	if o.InForce != nil {
		resources.grant(o)
	}
	for _, r := range rules {
		fields := r.fields
		if o.counters != "" {
			fields = maps.Clone(fields)
			fields["name"] = encoded(r.name) // the same as others of that namespace have
		}
		o.rules = append(o.rules, &rule{r.name, fields, o})
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
		c.rules = append(c.rules, r)
		attached := &rule{fields: map[string]json.RawMessage{}}
		for field, value := range r.fields {
			attached.fields[field] = value
		}
		// As deep as those of a listener's routes of which there are many.
		some := []any{map[string]any{"any": []any{map[string]any{"any": []any{map[string]any{"not": map[string]any{"any": []any{map[string]any{"host": map[string]string{"exact": "example.com"}}}}}}}}}}
		attached.only(some)
		attached.except(some)
		trial = append(trial, attached.fields)
	}
	if _, err := config.Parse(p.document("default", trial)); err != nil {
		c.refused = "attached to a route: " + told(err, path)
	}
	return c
}

// told lists mistakes with their paths in the policy.
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

// only lets the rule apply to requests that meet one of some conditions.
func (r *rule) only(some []any) {
	match := map[string]json.RawMessage{}
	_ = json.Unmarshal(r.fields["match"], &match) // the parser has read it
	if _, taken := match["any"]; taken {
		match = map[string]json.RawMessage{"not": encoded(map[string]any{"not": match})}
	}
	match["any"] = encoded(grouped(some))
	r.fields["match"] = encoded(match)
}

// except lets the rule leave alone requests that meet one of some conditions.
func (r *rule) except(some []any) {
	var except []json.RawMessage
	_ = json.Unmarshal(r.fields["except"], &except) // the parser has read it
	r.fields["except"] = encoded(append(except, encoded(map[string]any{"any": grouped(some)})))
}

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
		fields[i] = r.fields
	}
	d := document{text: p.document(namespace, fields), rules: rules}
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

// configurations splits rules among as few plugins as can have them: each has one namespace of counters. Requests pass through
// all of them.
func (p *Planner) configurations(namespace string, rules []*rule) (documents []document) {
	size, in := 0, ""
	var some []*rule
	flush := func() {
		documents = p.appendSound(documents, cmp.Or(in, namespace), some)
		some, size = nil, 0
	}
	slices.SortStableFunc(rules, func(a, b *rule) int { return cmp.Compare(a.of.counters, b.of.counters) })
	for _, r := range rules {
		length := len(encoded(r.fields))
		if len(some) == maxRules || size+length > maxDocument || r.of.counters != in {
			flush()
		}
		in = r.of.counters
		some, size = append(some, r), size+length
	}
	flush()
	return documents
}
