package server

import (
	"cmp"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/internal/backend"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// CounterPath is the path at which one key's counter is read and changed.
const CounterPath = "/v1/counter"

// Counter is the answer about one key: the hits that all nodes have counted.
type Counter struct {
	// ID is the key's identity, if the request had its values alone.
	ID string `json:"id,omitempty"`
	// Limits are those that were hit, or that the request named. It is empty if the key has no hits
	// in any window that counts.
	Limits []backend.CounterLimit `json:"limits"`
	// Known means that the backend has a counter of the key, even if all its hits were given back.
	Known bool `json:"known"`
	// Varies says that the limits are those that nodes have told of the rule, and that the configuration
	// may give this key others.
	Varies bool `json:"varies,omitempty"`
	// Override is the override in force for the key; nil for none.
	Override *Override `json:"override,omitempty"`
	// Mode is what the rule, or all rules of the namespace, were set to at run time: enforce, shadow or
	// off; empty for what the configuration says.
	Mode string `json:"mode,omitempty"`
	// Holders are the nodes whose requests hold places of the key, by their recent reports.
	Holders []backend.Holder `json:"holders,omitempty"`
}

// CounterChange is a request to change a key's counter, either by Reset or by Grant.
type CounterChange struct {
	ID string `json:"id"`
	// Rule and Key name the counter for nodes, as in an [Override].
	Rule string   `json:"rule"`
	Key  []string `json:"key"`
	// Reset empties the counter. Grant gives back this number of hits, if that many are counted.
	Reset bool   `json:"reset,omitempty"`
	Grant uint64 `json:"grant,omitempty"`
}

// CounterChanged is the answer to a CounterChange.
type CounterChanged struct {
	// Returned is how many hits were given back, summed over all limits. A block has none.
	Returned uint64 `json:"returned"`
	// Version is that of the list of overrides with the notice for nodes.
	Version uint64 `json:"version"`
}

// counterID parses an identity.
func counterID(text string) (id wire.ID, err error) {
	bytes, err := hex.DecodeString(text)
	if copy(id[:], bytes); err != nil || len(bytes) != len(id) {
		return id, wrong("id: want %d hexadecimal digits, got %.80q", hex.EncodedLen(len(id)), text)
	}
	return id, nil
}

func (h *handler) counter(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	query := r.URL.Query()
	asked, varies := CounterAsked{Rule: query.Get("rule"), Key: query["key"]}, false
	limits, err := limitsAsked(query["limit"])
	var of *wire.RuleShape
	if asked.Rule != "" && err == nil {
		var known []backend.Configuration
		known, err = h.backend.Configurations(r.Context(), namespace)
		of = backend.RuleOf(known, asked.Rule)
	}
	byName := asked.Rule != "" && !query.Has("id") && h.identity != nil
	switch {
	case err != nil:
	case byName:
		asked.ID, err = h.identityOf(of, asked.Rule, asked.Key)
	default:
		asked.ID, err = counterID(query.Get("id"))
	}
	var found backend.Counter
	var overrides backend.Overrides
	if err == nil {
		found, err = h.backend.Counter(r.Context(), namespace, asked.ID)
	}
	if err == nil {
		overrides, err = h.backend.Overrides(r.Context(), namespace)
	}
	if err != nil {
		return nil, err
	}
	if of != nil {
		asked.Key = of.Whole(asked.Key)
	}
	if asked.Is = sameKey(of, asked.Key); of != nil && of.Flags&wire.Local == 0 && len(limits) == 0 {
		limits, varies = of.Plain(), of.Flags&wire.Varies != 0
		asked.Fit = limits
	}
	asked.Limits = limits
	answer := CounterOf(&found, overrides.List, &asked)
	answer.Date(limits, int64(found.NowNanos))
	if byName {
		answer.ID = hex.EncodeToString(asked.ID[:])
	}
	answer.Varies = varies && (answer.Override == nil || len(answer.Override.Limits) == 0)
	return answer, nil
}

func (h *handler) identityOf(of *wire.RuleShape, rule string, key []string) (id wire.ID, err error) {
	switch {
	case of == nil || of.Flags&wire.AnyKey != 0:
		return id, wrong("rule: no node has told the key of %.80q: want an id", rule)
	case of.Flags&wire.Local != 0:
		return id, wrong("rule: each node counts %s alone, so the backend does not know the key", rule)
	case len(key) != of.Values():
		return id, wrong("key: want %d values for the key of %s, got %d", of.Values(), rule, len(key))
	}
	counting := make([]string, len(key))
	for i, value := range key {
		if i == of.Shared() && value != "" {
			return id, wrong("key: want an empty value %d for the key of %s, whose classes count all such values together, got %.80q", i+1, rule, value)
		}
		if _, _, address := of.Prefixes(i); address {
			if _, err := netip.ParseAddr(withoutPrefix(value)); err != nil {
				return id, wrong("key: want an address for value %d of the key of %s, got %.80q", i+1, rule, value)
			}
		}
		counting[i] = counts(of, i, value)
	}
	return h.identity(rule, counting), nil
}

// withoutPrefix returns the address of a network: people type these too.
func withoutPrefix(value string) string {
	if address, _, network := strings.Cut(value, "/"); network && address != "" {
		return address
	}
	return value
}

// counts returns as much of a key's value as counts: of a client address, what nodes have told.
func counts(of *wire.RuleShape, i int, value string) string {
	if _, _, address := of.Prefixes(i); address {
		value = withoutPrefix(value)
	}
	return backend.Counts(of, i, value)
}

// sameKey returns whether values are a key of a rule; nil if nodes have told nothing of the rule's key.
func sameKey(of *wire.RuleShape, key []string) func(values []string) bool {
	if of == nil || of.Flags&wire.AnyKey != 0 {
		return nil
	}
	return func(values []string) bool {
		for i := range min(len(key), len(values)) {
			if counts(of, i, values[i]) != counts(of, i, key[i]) {
				return false
			}
		}
		return len(values) == len(key)
	}
}

// CounterAsked says which counter CounterOf should describe.
type CounterAsked struct {
	ID wire.ID
	// Rule and Key name the key's override: see [Override]. Without a rule there is none.
	Rule string
	Key  []string
	// Is reports whether the values of an override are the key's; nil if they are only if they equal Key.
	Is func(values []string) bool
	// Fit are the rule's limits, with their calendars, if overrides that do not fit should be left out.
	Fit []window.Limit
	// Limits are the key's limits, as far as known. An override takes precedence.
	Limits []window.Limit
}

// CounterOf describes a counter that a backend has found. overrides are those of its namespace. The
// limits in by come first, in their order.
func CounterOf(found *backend.Counter, overrides []wire.Override, by *CounterAsked) Counter {
	counter := Counter{Limits: []backend.CounterLimit{}, Known: found.Known, Holders: found.Holders}
	is := by.Is
	if is == nil {
		is = func(values []string) bool { return slices.Equal(values, by.Key) }
	}
	var override []wire.OverrideLimit
	if o := backend.InForce(overrides, by.Rule, by.Key, is, by.Fit); o != nil {
		of := overrideOf(o)
		counter.Override, override = &of, slices.Clone(o.Limits)
	}
	for i := range overrides {
		if o := &overrides[i]; by.Rule != "" && o.Mode > wire.Configured && o.Mode.IsWhole() && (o.Rule == wire.AllRules || o.Rule == by.Rule && counter.Mode == "") {
			counter.Mode = wire.ModeNames[o.Mode]
		}
	}
	asked := make([]askedLimit, len(by.Limits))
	for i := range by.Limits {
		l := &by.Limits[i]
		asked[i] = askedLimit{of: store.LimitCounter{LimitCounter: counterOf(by.ID, l, int64(found.NowNanos))}, limit: l.Max, burst: l.Burst, known: true}
	}
	for _, of := range found.Limits {
		if at := slices.IndexFunc(asked, func(a askedLimit) bool { return a.of.LimitCounter == of.LimitCounter }); at >= 0 {
			asked[at].of.Limit, asked[at].of.Windows = of.Limit, of.Windows
		} else {
			asked = append(asked, askedLimit{of: of, limit: of.Limit, burst: of.Limit, known: window.Kind(of.Kind).Refills()})
		}
	}
	calendar := store.Calendar{NowNanos: found.NowNanos}
	for i := range asked {
		a := &asked[i]
		// Overrides are matched as by nodes: each limit goes to the first with its window that has
		// none yet.
		if at := slices.IndexFunc(override, func(l wire.OverrideLimit) bool { return l.WidthMillis == a.of.WidthMillis }); at >= 0 {
			a.limit, a.burst, a.known = override[at].Max, override[at].Burst, true
			a.burst = cmp.Or(a.burst, max(1, a.limit))
			override = slices.Delete(override, at, at+1)
		}
		l := a.standing(calendar)
		// What was reported may be over: then it was given back.
		if kind := window.Kind(a.of.Kind); !kind.Blocks() && !kind.Held() {
			if l.Pending = found.Pending; found.Leased <= l.Used {
				l.Leased = found.Leased
			}
		}
		counter.Limits = append(counter.Limits, l)
	}
	return counter
}

// counterOf returns the counter of a key's limit at a time.
func counterOf(id wire.ID, l *window.Limit, now int64) wire.LimitCounter {
	return wire.LimitCounter{ID: id, Kind: uint8(l.Kind), WidthMillis: uint64(l.WidthAt(now) / window.MinWidth), Precision: uint64(l.Precision), Ordinal: l.Ordinal}
}

// Date fills in, for calendar limits, when their windows end, and the limits of the override, which
// the backend does not know. limits are those of the request.
func (c *Counter) Date(limits []window.Limit, now int64) {
	var moved []window.Limit // by the override, if it has any
	if c.Override != nil && len(c.Override.Limits) > 0 {
		moved, _ = wire.Fit(limits, c.Override.WireLimits())
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		at := backend.CalendarAt(limits, l.Ordinal, l.WidthMS, now)
		if at < 0 {
			continue
		}
		l.Period = backend.PeriodOf(&limits[at])
		if moved != nil {
			most := moved[at].Max
			left := most - min(most, l.Used)
			l.Limit, l.Left = &most, &left
		}
		if l.ResetMS == nil {
			continue
		}
		ends := (limits[at].Calendar.At(now).End - now) / window.MinWidth
		l.ResetMS, l.NextMS = &ends, nil
		if l.Limit != nil && *l.Limit > 0 {
			l.NextMS = &ends
		}
	}
}

// askedLimit is a limit of a counter, as far as known.
type askedLimit struct {
	of           store.LimitCounter
	limit, burst uint64
	known        bool
}

func (a *askedLimit) standing(calendar store.Calendar) backend.CounterLimit {
	l := backend.CounterLimit{
		Algorithm: a.of.Shape().Name(), WidthMS: a.of.WidthMillis, PrecisionNS: a.of.Precision, Ordinal: a.of.Ordinal,
	}
	if !a.known {
		a.limit, a.burst = window.MaxLimit, window.MaxLimit
	}
	used, standing := calendar.Standing(&a.of, a.limit, a.burst)
	if l.Used = used; standing.Reset >= 0 && used > 0 {
		millis := (standing.Reset + 1e6 - 1) / 1e6
		l.ResetMS = &millis
	}
	kind := window.Kind(a.of.Kind)
	if kind.Blocks() {
		l.Used = min(l.Used, 1) // a block has no hits to count
	}
	if a.known {
		if l.Limit, l.Left = &a.limit, &standing.Remaining; kind.Bursts() && a.limit > 0 {
			l.Burst = a.burst
		}
		if standing.Next > 0 && !kind.Held() {
			millis := (standing.Next + 1e6 - 1) / 1e6
			l.NextMS = &millis
		}
	}
	return l
}

// limitsAsked parses limits in the form ALGORITHM/WIDTH_MS/PRECISION_NS/ORDINAL/LIMIT/BURST.
func limitsAsked(texts []string) (asked []window.Limit, err error) {
	const form = "limit: want ALGORITHM/WIDTH_MS/PRECISION_NS/ORDINAL/LIMIT/BURST, got %.80q"
	if len(texts) > wire.MaxLimits {
		return nil, wrong("limit: want at most %d, got %d", wire.MaxLimits, len(texts))
	}
	for _, text := range texts {
		parts := strings.Split(text, "/")
		if len(parts) != 6 {
			return nil, wrong(form, text)
		}
		var numbers [5]uint64
		for i := range numbers {
			n, err := strconv.ParseUint(parts[i+1], 10, 64)
			if err != nil {
				return nil, wrong(form, text)
			}
			numbers[i] = n
		}
		of := wire.LimitCounter{
			Kind: uint8(window.Named(parts[0])), WidthMillis: numbers[0], Precision: numbers[1], Ordinal: uint8(min(numbers[2], 255)),
		}
		if !store.ValidCounter(of) || numbers[2] > 255 || numbers[3] > window.MaxLimit || numbers[4] > window.MaxLimit {
			return nil, wrong(form, text)
		}
		asked = append(asked, window.Limit{Shape: of.Shape(), Max: numbers[3], Burst: numbers[4]})
	}
	return asked, nil
}

// maxCounterBody bounds the body of a CounterChange, in bytes.
const maxCounterBody = 128 << 10

// changeCounter empties a key's counter, or gives hits back.
func (h *handler) changeCounter(w http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	var given CounterChange
	if !h.readJSON(w, r, maxCounterBody, &given, `{"id": "…", "rule": "per-user", "key": ["ann"], "reset": true}`) {
		return nil, nil
	}
	if given.Reset == (given.Grant > 0) {
		return nil, wrong(`body: want either "reset": true, or "grant" with a number such as 500`)
	}
	id, err := counterID(given.ID)
	if err != nil {
		return nil, wrong("body: %v", err)
	}
	by, err := h.by(r)
	if err != nil {
		return nil, err
	}
	returned, version, err := by.ChangeCounter(r.Context(), namespace, &backend.Change{ID: id, Rule: given.Rule, Values: given.Key, Grant: given.Grant})
	unannounced := errors.Is(err, backend.ErrUnannounced) // maybe because the list is full, which makes it ErrInvalid too
	if !unannounced && (err == nil || errors.Is(err, backend.ErrUnrecorded) || errors.Is(err, store.ErrInvalid)) {
		return CounterChanged{Returned: returned, Version: version}, err
	}
	h.health.succeeded(r.Context(), err, false)
	if unannounced {
		return nil, mistake{http.StatusServiceUnavailable, backend.ErrUnannounced.Error() + ": give back nothing more, and reset it, or wait until the window ends"}
	}
	return nil, mistake{http.StatusServiceUnavailable, "the store failed: look at the counter before you try again"}
}
