package server

import (
	"fmt"
	"net/http"

	"weir/internal/backend"
	"weir/internal/trust"
	"weir/internal/wire"
	"weir/window"
)

// NamespacesPath is the path of what a backend knows of namespaces.
const NamespacesPath = "/v1/namespaces"

// Namespaces are the namespaces that nodes report in, or the one that was asked for.
type Namespaces struct {
	Namespaces []Namespace `json:"namespaces"`
}

// Namespace is a namespace that nodes have reported in.
type Namespace struct {
	Namespace string `json:"namespace"`
	// Nodes have reported in half a minute. Rules is how many rules most of them have, and Others how many of
	// them have another configuration than most.
	Nodes  int `json:"nodes"`
	Rules  int `json:"rules"`
	Others int `json:"others"`
	// HeardSeconds is how long ago that was noted: each minute while nodes report. Nodes without requests
	// are silent. The answer about one namespace has what is so now.
	HeardSeconds float64 `json:"heard_seconds"`
	// Known are the rules that nodes have, each once, as most of those that have it told it: first those of the
	// configuration that most have. Configurations are all that nodes have. Only the answer about one namespace
	// has them.
	Known          []KnownRule             `json:"known,omitempty"`
	Configurations []backend.Configuration `json:"configurations,omitempty"`
}

// KnownRule is what nodes have told of a rule.
type KnownRule struct {
	Rule string `json:"rule"`
	// Mode is enforce or shadow.
	Mode string `json:"mode"`
	// Local rules count in each node alone. Varies says that some keys or requests have other limits.
	Local  bool `json:"local,omitempty"`
	Varies bool `json:"varies,omitempty"`
	// Fair rules count requests that differ in the last value but one of the key together, with an empty value there.
	Fair bool `json:"fair,omitempty"`
	// Classes says that the last value of the key is that of a class's part. Overrides have an empty value there.
	Classes bool `json:"classes,omitempty"`
	// Key has the form of each value of the key; nil if the nodes do not know it.
	Key    []KeyForm            `json:"key"`
	Limits []backend.KnownLimit `json:"limits"`
}

// KeyForm is the form of a value of a key.
type KeyForm struct {
	// ClientIP is set if it is a client address.
	ClientIP *Prefixes `json:"client_ip,omitempty"`
}

// Prefixes are how many leading bits of an address count.
type Prefixes struct {
	IPv4 int `json:"ipv4_prefix"`
	IPv6 int `json:"ipv6_prefix"`
}

// namespaces answers with the namespaces that the client may read, or with what is known of one.
func (h *handler) namespaces(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	client, _ := r.Context().Value(clientKey{}).(trust.Client)
	found, err := h.backend.Namespaces(r.Context(), func(of string) bool {
		return (namespace == "" || of == namespace) && client.May(trust.GetNamespaces, of) == trust.Allowed
	})
	var known []backend.Configuration
	if err == nil && len(found) > 0 && namespace != "" {
		heard := found[0].Heard
		found[0], known, err = h.backend.Census(r.Context(), namespace)
		found[0].Heard = heard
	}
	if err != nil {
		return nil, err
	}
	answer := Namespaces{[]Namespace{}}
	for _, f := range found {
		n := Namespace{Namespace: f.Name, Nodes: f.Nodes, Rules: f.Rules, Others: f.Others, HeardSeconds: backend.Rounded(max(0, h.health.now().Sub(f.Heard).Seconds()))}
		if n.Configurations = known; len(known) > 0 {
			n.Known = []KnownRule{}
			listed := map[string]bool{}
			for j := range known {
				for k := range known[j].Rules {
					if rule := &known[j].Rules[k]; !listed[rule.Name] {
						listed[rule.Name] = true
						n.Known = append(n.Known, knownRule(rule))
					}
				}
			}
		}
		answer.Namespaces = append(answer.Namespaces, n)
	}
	return answer, nil
}

func knownRule(s *wire.RuleShape) KnownRule {
	r := KnownRule{Rule: s.Name, Mode: "enforce", Local: s.Flags&wire.Local != 0, Varies: s.Flags&wire.Varies != 0, Fair: s.Shared() >= 0, Classes: s.Flags&wire.Classes != 0, Limits: knownLimits(s)}
	if s.Flags&wire.IsShadow != 0 {
		r.Mode = "shadow"
	}
	if s.Flags&wire.AnyKey == 0 {
		r.Key = make([]KeyForm, s.Values())
		for i := range r.Key {
			if ipv4, ipv6, ok := s.Prefixes(i); ok {
				r.Key[i].ClientIP = &Prefixes{ipv4, ipv6}
			}
		}
	}
	return r
}

func knownLimits(s *wire.RuleShape) (all []backend.KnownLimit) {
	for _, l := range s.Limits {
		all = append(all, backend.KnownLimit{
			Algorithm: l.Name(), WidthMS: uint64(l.Width / window.MinWidth), Period: backend.PeriodOf(&l.Limit), PrecisionNS: uint64(l.Precision), Limit: l.Max, Burst: l.Burst,
		})
	}
	return all
}

// stood bounds the keys of an answer whose counters are read.
const stood = 200

// stand adds to the first keys of each list of top how they stand now. Keys that may have other limits
// than their rule are left out.
func (h *handler) stand(r *http.Request, namespace string, top *backend.Top, first int) error {
	overrides, err := h.backend.Overrides(r.Context(), namespace)
	if err != nil {
		return err
	}
	overridden := map[string]bool{}
	for i := range overrides.List {
		if o := &overrides.List[i]; len(o.Limits) > 0 { // a mode alone gives no key other limits
			overridden[o.Rule] = true
		}
	}
	asked := map[wire.ID][]*backend.TopKey{}
	rules := map[wire.ID]*wire.RuleShape{}
	for i := range top.Rules {
		t, rule := &top.Rules[i], backend.RuleOf(top.Configurations, top.Rules[i].Rule)
		if rule == nil {
			continue
		}
		if t.Limits, t.Varies = knownLimits(rule), rule.Flags&wire.Varies != 0 || overridden[t.Rule]; rule.Flags&wire.Local != 0 || t.Varies {
			continue
		}
		for _, list := range [][]backend.TopKey{t.Used, t.Refused} {
			for j := range list[:min(first, len(list))] {
				id, err := counterID(list[j].Hash)
				if err == nil && (len(asked) < stood || asked[id] != nil) {
					asked[id] = append(asked[id], &list[j])
					rules[id] = rule
				}
			}
		}
	}
	counters, err := h.backend.Standing(r.Context(), namespace, rules)
	for id, c := range counters {
		limits := rules[id].Plain()
		stands := CounterOf(&c, nil, &CounterAsked{ID: id, Limits: limits})
		stands.Date(limits, int64(c.NowNanos))
		for _, k := range asked[id] {
			k.Limits = stands.Limits
		}
	}
	return err
}

// topAsked returns of how many keys of each list it should be told how they stand.
func topAsked(text string) (first int, err error) {
	if text == "" {
		return 0, nil
	}
	if _, err := fmt.Sscanf(text, "%d", &first); err != nil || first < 0 || first > wire.MaxReportKeys {
		return 0, wrong("keys: want 0 to %d, got %.80q", wire.MaxReportKeys, text)
	}
	return first, nil
}
