package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"weir/internal/backend"
	"weir/internal/wire"
)

// Overrides are the overrides of a namespace, and how many nodes know them.
type Overrides struct {
	// Version is that of the list; 0 if there has never been one. It is left out where overrides
	// are set.
	Version uint64 `json:"version,omitempty"`
	// Nodes is how many nodes have reported in the last minute. Knowing is how many of them decide
	// by this list, or an earlier one if the call says so, and Unfitting how many of these could not apply all of it.
	// Unfit is how many overrides nodes can't apply in total, whichever list they have.
	Nodes     int        `json:"nodes"`
	Knowing   int        `json:"knowing"`
	Unfitting int        `json:"unfitting"`
	Unfit     uint64     `json:"unfit"`
	Overrides []Override `json:"overrides"`
	// More is how many others there are, if the call has asked for some.
	More int `json:"more,omitempty"`
}

// Override gives one key of a rule other limits, or those that are like it, or a whole rule other limits,
// another mode or both.
type Override struct {
	// Rule is wire.AllRules for all rules together.
	Rule string `json:"rule"`
	// Mode is "enforce", "shadow", "off", or "configured" for that of the configuration. It is set if the
	// override is of a whole rule, which has no Key.
	Mode string `json:"mode,omitempty"`
	// Key has the values of the rule's selectors, in the form in which people write them.
	Key []string `json:"key"`
	// Pattern is "prefix", "suffix" or "network" for all keys whose value Part, which counts from 0,
	// begins or ends with that of Key, or is an address of the network that stands there. Their other
	// values are those of Key.
	Pattern string          `json:"pattern,omitempty"`
	Part    int             `json:"part,omitempty"`
	Limits  []OverrideLimit `json:"limits"`
	// Until is when the override ends; nil for never.
	Until *time.Time `json:"until,omitempty"`
}

// OverrideLimit replaces the rule's limit with the same window.
type OverrideLimit struct {
	Limit   uint64 `json:"limit"`
	WidthMS uint64 `json:"width_ms"`
	// Burst is the burst of a token bucket; 0 means the limit.
	Burst uint64 `json:"burst,omitempty"`
}

// Changed is the answer to a change of overrides.
type Changed struct {
	// Version is that of the new list, and Changed is how many overrides were set or removed.
	Version uint64 `json:"version"`
	Changed int    `json:"changed"`
}

// someOverrides is how many are listed for a page.
const someOverrides = 50

// Bounds of a list in JSON, in bytes.
const (
	maxOverridesBody = 2 * wire.MaxOverridesSize
	// maxOverrideBody bounds an override: 16 values of 1,024 bytes, all of them escaped.
	maxOverrideBody = 128 << 10
	// mostSet bounds the overrides of a call, modes of whole rules among them.
	mostSet = 2 * wire.MaxOverrides
)

// settings is the body that sets overrides. It is counted as it is read, since a body may have many more than
// a namespace.
type settings struct {
	Overrides
	List bounded `json:"overrides"`
}

// bounded are at most so many overrides that one call can set them, none of them larger than any can be.
type bounded []Override

func (l *bounded) UnmarshalJSON(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("overrides: want an array")
	}
	for d.More() {
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return err
		}
		if len(*l) == mostSet || len(one) > maxOverrideBody {
			return fmt.Errorf("overrides: want at most %d, each of at most %d bytes", mostSet, maxOverrideBody)
		}
		var o Override
		strict := json.NewDecoder(bytes.NewReader(one))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&o); err != nil {
			return err
		}
		// Else the checks of a whole call would come when it has its memory already.
		switch at := len(*l); {
		case len(o.Limits) > wire.MaxLimits:
			return fmt.Errorf("overrides[%d].limits: want 1 to %d, got %d", at, wire.MaxLimits, len(o.Limits))
		case len(o.Key) > wire.MaxOverrideValues:
			return fmt.Errorf("overrides[%d].key: want at most %d values, got %d", at, wire.MaxOverrideValues, len(o.Key))
		}
		*l = append(*l, o)
	}
	return nil
}

func (h *handler) overrides(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	found, err := h.backend.Overrides(r.Context(), namespace)
	if err != nil {
		return nil, err
	}
	if text := r.URL.Query().Get("version"); text != "" {
		version, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, wrong("version: want a number, got %.80q", text)
		}
		found.KnownFrom(version)
	}
	all := Overrides{
		Version: found.Version, Nodes: found.Nodes, Knowing: found.Knowing, Unfitting: found.Unfitting, Unfit: found.Unfit, Overrides: []Override{},
	}
	rule, most := r.URL.Query().Get("rule"), wire.MaxOverrides*2
	if r.URL.Query().Has("some") {
		most = someOverrides
	}
	for i := range found.List {
		switch {
		case rule != "" && found.List[i].Rule != rule:
		case len(all.Overrides) == most:
			all.More++
		default:
			all.Overrides = append(all.Overrides, overrideOf(&found.List[i]))
		}
	}
	return all, nil
}

// setOverrides adds overrides, or replaces those of the same keys.
func (h *handler) setOverrides(w http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	var given settings
	if !h.readJSON(w, r, maxOverridesBody, &given, `{"overrides": [{"rule": "per-user", "key": ["ann"], "limits": [{"limit": 10, "width_ms": 60000}]}]}`) {
		return nil, nil
	}
	set := make([]wire.Override, len(given.List))
	for i := range set {
		o := &given.List[i]
		var err error
		if set[i], err = o.wire(); err == nil && o.Until != nil && !o.Until.After(h.health.now()) {
			err = fmt.Errorf("until: want a time to come, got %s", o.Until.Format(time.RFC3339))
		}
		if err != nil {
			return nil, wrong("body: overrides[%d].%v", i, err)
		}
	}
	by, err := h.by(r)
	if err != nil {
		return nil, err
	}
	do := by.SetOverrides
	if r.URL.Query().Has("force") {
		do = by.ForceOverrides
	}
	version, err := do(r.Context(), namespace, set...)
	return Changed{Version: version, Changed: len(set)}, err
}

// unsetOverrides removes the override of a key, or all of a rule.
func (h *handler) unsetOverrides(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	query := r.URL.Query()
	all, whole := query.Has("all"), query.Has("whole")
	of := Override{Key: query["key"], Pattern: query.Get("pattern")}
	part, err := strconv.Atoi(cmp.Or(query.Get("part"), "0"))
	of.Part = part
	asked, errOf := of.wire()
	values := asked.Values
	switch {
	case query.Get("rule") == "":
		return nil, wrong("rule: want the rule whose override to remove")
	case err != nil:
		return nil, wrong("part: want a number, got %.80q", query.Get("part"))
	case errOf != nil:
		return nil, wrong("%v", errOf)
	case all && len(values) > 0:
		return nil, wrong("all: want either all or key, got both")
	case whole && (all || len(values) > 0):
		return nil, wrong("whole: want neither all nor key with it")
	case !all && values == nil:
		values = []string{}
	}
	by, err := h.by(r)
	if err != nil {
		return nil, err
	}
	var changed Changed
	if whole {
		changed.Changed, changed.Version, err = by.ResetRule(r.Context(), namespace, query.Get("rule"))
	} else {
		changed.Changed, changed.Version, err = by.UnsetOverrides(r.Context(), namespace, query.Get("rule"), asked.Mode, values)
	}
	return changed, err
}

func (h *handler) json(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		h.log.Debug("answer not sent", "error", err)
	}
}

// wire converts the override to the form of messages.
func (o *Override) wire() (of wire.Override, err error) {
	of = wire.Override{Rule: o.Rule, Values: o.Key, Limits: o.WireLimits()}
	if o.Until != nil {
		of.Until = uint64(max(1, o.Until.UnixMilli()))
	}
	mode := slices.Index(wire.ModeNames[:], o.Mode)
	if mode < 0 {
		return of, fmt.Errorf("mode: want configured, enforce, shadow or off, got %.80q", o.Mode)
	}
	of.Mode = wire.Mode(mode)
	if o.Pattern == "" {
		return of, nil
	}
	var kind byte
	for k, name := range backend.PatternNames {
		if name == o.Pattern {
			kind = k
		}
	}
	switch {
	case kind == 0:
		return of, fmt.Errorf("pattern: want prefix, suffix or network, got %.80q", o.Pattern)
	case of.Mode != wire.OfKey:
		return of, errors.New("pattern: want none for a whole rule")
	case o.Part < 0 || o.Part >= len(o.Key):
		return of, fmt.Errorf("part: want 0 to %d, the place of the pattern in key, got %d", len(o.Key)-1, o.Part)
	}
	of.Mode, of.Values = wire.OfKeys, nil
	for i, value := range o.Key {
		mark := byte(wire.Exactly)
		if i == o.Part {
			mark = kind
		}
		if mark == wire.ByNetwork {
			network, err := netip.ParsePrefix(value)
			if err != nil || network.Addr().Is4In6() {
				return of, fmt.Errorf("key[%d]: want a network such as 10.0.0.0/8 or 2001:db8::/32, got %.80q", i, value)
			}
			value = network.Masked().String()
		}
		of.Values = append(of.Values, string(mark)+value)
	}
	return of, nil
}

// WireLimits converts the override's limits to the form of messages.
func (o *Override) WireLimits() (limits []wire.OverrideLimit) {
	for _, l := range o.Limits {
		limits = append(limits, wire.OverrideLimit{Max: l.Limit, Burst: l.Burst, WidthMillis: l.WidthMS})
	}
	return limits
}

// overrideOf converts an override to the form of JSON.
func overrideOf(of *wire.Override) Override {
	o := Override{Rule: of.Rule, Mode: wire.ModeNames[of.Mode], Key: append([]string{}, of.Texts()...), Limits: []OverrideLimit{}}
	if p, ok := wire.PatternOf(of.Values); ok && of.Mode == wire.OfKeys {
		o.Part, o.Pattern = int(p.Part), backend.PatternNames[p.Kind]
	}
	for _, l := range of.Limits {
		o.Limits = append(o.Limits, OverrideLimit{Limit: l.Max, Burst: l.Burst, WidthMS: l.WidthMillis})
	}
	if of.Until != 0 {
		until := time.UnixMilli(int64(of.Until)).UTC()
		o.Until = &until
	}
	return o
}
