package ui

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/counter"
	"weir/internal/named"
	"weir/internal/server"
	"weir/internal/wire"
)

// Why has the state of a rule's key, which shows why it is refused. Its first limits are those of
// the rule, in the order of the configuration.
type Why struct {
	Rule string `json:"rule"`
	Hash string `json:"hash"`
	// Key has the key's values, or is nil if only the hash is known.
	Key []string `json:"key"`
	// Listed says that the configuration has other limits for the key. Varies says that some
	// requests of the key may have other limits.
	Listed bool `json:"listed"`
	Varies bool `json:"varies"`
	server.Counter
}

// why answers why a key is refused. The query has the key's values, or its hash.
func (v *View) why(w http.ResponseWriter, r *http.Request) {
	rule, err := v.shared(r.URL.Query().Get("rule"))
	var asked Why
	if err == nil {
		asked, err = v.keyAsked(rule, r.URL.Query())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := v.find(r.Context(), rule, &asked); err != nil {
		http.Error(w, "the store can't be read: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	answer(w, &asked)
}

// shared returns a rule whose keys the backend knows.
func (v *View) shared(name string) (*config.Rule, error) {
	rules := v.o.Config.Rules
	at := slices.IndexFunc(rules, func(r config.Rule) bool { return r.Name == name })
	switch {
	case at < 0:
		return nil, fmt.Errorf("rule: the configuration has no rule %.80q", name)
	case v.backend == nil:
		return nil, fmt.Errorf("rule %s: there is no backend, so each node counts alone", name)
	case rules[at].SyncRate < 0:
		return nil, fmt.Errorf("rule %s: each node counts alone because sync_rate is below 0, so the backend does not know the key", name)
	}
	return &rules[at], nil
}

func (v *View) keyAsked(rule *config.Rule, query url.Values) (asked Why, err error) {
	asked = Why{Rule: rule.Name, Hash: query.Get("id")}
	if !query.Has("id") {
		asked.Key = append([]string{}, query["key"]...)
		if err := named.Check(rule, asked.Key); err != nil {
			return asked, fmt.Errorf("key: %w", err)
		}
		id := v.identity(rule, asked.Key)
		asked.Hash = hex.EncodeToString(id[:])
		return asked, nil
	}
	if bytes, err := hex.DecodeString(asked.Hash); err != nil || len(bytes) != len(wire.ID{}) {
		return asked, fmt.Errorf("id: want %d hexadecimal digits, got %.80q", hex.EncodedLen(len(wire.ID{})), asked.Hash)
	}
	return asked, nil
}

func (v *View) identity(rule *config.Rule, key []string) wire.ID {
	of := counter.NewIdentities(v.o.Config.Backend.KeySecret)
	return named.Identity(&of, rule.Name, rule.Key, key)
}

// find looks the key up in the store.
func (v *View) find(ctx context.Context, rule *config.Rule, asked *Why) error {
	ctx, cancel := context.WithTimeout(ctx, backend.Timeout)
	defer cancel()
	by := server.CounterAsked{Rule: rule.Name, Limits: rule.Limits}
	if _, err := hex.Decode(by.ID[:], []byte(asked.Hash)); err != nil {
		return err
	}
	found, err := v.backend.Counter(ctx, v.o.Config.Namespace, by.ID)
	if err != nil {
		return err
	}
	overrides, err := v.backend.Overrides(ctx, v.o.Config.Namespace)
	if err != nil {
		return err
	}
	// Values with the same counter, such as two addresses of a network, share an override. It has a name for the hash.
	is := func(key []string) bool {
		all := named.Counters(rule, key)
		at := slices.IndexFunc(all, func(key []string) bool { return v.identity(rule, key) == by.ID })
		if at >= 0 && asked.Key == nil {
			asked.Key = append([]string{}, all[at]...)
		}
		return at >= 0
	}
	for i := range rule.Overrides.Keys {
		if o := &rule.Overrides.Keys[i]; is(o.Key) {
			asked.Listed, by.Limits = true, o.Limits
		}
	}
	by.Key, by.Is, by.Fit = named.Whole(rule, asked.Key), is, rule.Limits
	asked.Counter = server.CounterOf(&found, overrides.List, &by)
	asked.Varies = len(rule.LimitFrom) > 0 || rule.Overrides.By != nil
	asked.Date(by.Limits, int64(found.NowNanos))
	return nil
}

// partNames are the configuration's words for parts of a request.
var partNames = map[config.SelectorKind]string{
	config.SelectHeader: "header", config.SelectClientIP: "client_ip", config.SelectMethod: "method", config.SelectPath: "path", config.SelectHost: "host",
	config.SelectQuery: "query", config.SelectCookie: "cookie", config.SelectPathSegment: "path_segment", config.SelectClaim: "jwt_claim",
	config.SelectProperty: "property", config.SelectInNetworks: "in_cidr: true or false", config.SelectLiteral: "literal", config.SelectBody: "request_json",
}

// partOf names a part of a request in the configuration's words.
func partOf(s *config.Selector) string {
	of := strings.ReplaceAll(s.Name, "\x00", ".")
	switch s.Kind {
	case config.SelectPathSegment:
		of = strconv.Itoa(s.Segment)
	case config.SelectClaim:
		of = s.Claim
	}
	if of == "" {
		return cmp.Or(partNames[s.Kind], "value")
	}
	return partNames[s.Kind] + " " + of
}

// costly reports whether a request of a rule may take more than one hit.
func costly(r *config.Rule) bool {
	return r.Cost > 1 || r.CostFrom != nil || r.CostFromBody != nil || r.CostOnResponse != nil || r.Usage != nil
}
