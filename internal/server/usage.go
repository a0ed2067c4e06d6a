package server

import (
	"cmp"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/backend"
	"weir/internal/share"
	"weir/internal/wire"
)

// UsagePath is the path of the usage of keys.
const UsagePath = "/v1/usage"

// Usage is the usage of a namespace's keys from the day From to the day To.
type Usage struct {
	From string     `json:"from"`
	To   string     `json:"to"`
	Rows []UsageRow `json:"rows"`
	// Gaps are times of these days of which usage may be missing, the first one first. If there have
	// been many workers, some before GapsSince may be forgotten.
	Gaps      []backend.Gap `json:"gaps,omitempty"`
	GapsSince *time.Time    `json:"gaps_since,omitempty"`
}

// UsageRow is the usage of one key or group.
type UsageRow struct {
	// Month and Day are set if usage is grouped by them. Days are those of the rule's time zone.
	Month string `json:"month,omitempty"`
	Day   string `json:"day,omitempty"`
	Rule  string `json:"rule"`
	// Hash is the key's identity in the backend, and Values are those of the rule's selectors as
	// far as it reveals them. Others means that the row sums up keys without a row of their own.
	Hash   string          `json:"hash,omitempty"`
	Values []backend.Value `json:"values,omitempty"`
	Others bool            `json:"others,omitempty"`
	Model  string          `json:"model,omitempty"`
	Hits   int64           `json:"hits"`
	// Budget is the key's last known state in the longest window of the rule.
	Budget *UsageBudget `json:"budget,omitempty"`
}

// UsageBudget is the state of a key in a window of a limit.
type UsageBudget struct {
	At    time.Time `json:"at"`
	Used  uint64    `json:"used"`
	Quota uint64    `json:"quota"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// EndsAt is when the budget will be used up at the window's pace so far, if that is before the
	// window ends, and AtEnd what will be used by then. Both are left out once the window has
	// ended.
	EndsAt *time.Time `json:"ends_at,omitempty"`
	AtEnd  *uint64    `json:"at_end,omitempty"`
}

// usage answers with what keys have used.
func (h *handler) usage(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	now := h.health.now()
	query, err := usageAsked(r.URL.Query(), now)
	if err != nil {
		return nil, err
	}
	found, err := h.backend.Usage(r.Context(), namespace, &query)
	switch {
	case errors.Is(err, backend.ErrTooMuch):
		return nil, wrong("by: want at most %d rows: ask for one rule, for fewer months or a day, or group by fewer parts", backend.MaxUsage)
	case errors.Is(err, backend.ErrTooLong):
		return nil, mistake{http.StatusServiceUnavailable, "so much takes longer than " + backend.Timeout.String() + " to read: ask for fewer months or a day"}
	case err != nil:
		return nil, err
	}
	gaps, since, err := h.backend.Gaps(r.Context(), namespace, query.From, query.To)
	if err != nil {
		return nil, err
	}
	u := usageOf(&query, found, now)
	if u.Gaps = gaps; !since.IsZero() {
		u.GapsSince = &since
	}
	return u, nil
}

const (
	monthLayout = "2006-01"
	// maxMonths is above the number of months that are kept.
	maxMonths = 24
)

// usageAsked parses the query of GET /v1/usage.
func usageAsked(query url.Values, now time.Time) (q backend.UsageQuery, err error) {
	for name := range query {
		if !slices.Contains([]string{"namespace", "rule", "month", "day", "by"}, name) {
			return q, wrong("want namespace, rule, month, day or by, got %.80q", name)
		}
		if len(query[name]) > 1 {
			return q, wrong("%s: want it only once", name)
		}
	}
	q.Rule = query.Get("rule")
	months := cmp.Or(query.Get("month"), now.UTC().Format(monthLayout))
	first, last, spans := strings.Cut(months, "..")
	if !spans {
		last = first
	}
	from, errFrom := time.Parse(monthLayout, first)
	to, errTo := time.Parse(monthLayout, last)
	if errFrom != nil || errTo != nil || from.Year() < 1970 || to.Year() > 2399 || to.Before(from) || to.After(from.AddDate(0, maxMonths, 0)) {
		return q, wrong("month: want a month such as 2026-11, or up to %d months such as 2026-01..2026-11, got %.80q", maxMonths, months)
	}
	if q.From, q.To = dayOf(from), dayOf(to.AddDate(0, 1, -1)); query.Has("day") {
		day, err := time.Parse(time.DateOnly, query.Get("day"))
		if err != nil || day.Year() < 1970 || day.Year() > 2399 || query.Has("month") {
			return q, wrong("day: want a day such as 2026-11-16, and no month, got %.80q", query.Get("day"))
		}
		q.From, q.To = dayOf(day), dayOf(day)
	}
	by := query.Get("by")
	if !query.Has("by") {
		by = "key"
	}
	for name := range strings.SplitSeq(by, ",") {
		if of := (map[string]*bool{"key": &q.Key, "model": &q.Model, "day": &q.Day, "month": &q.Month})[name]; of != nil {
			*of = true
		} else if name != "rule" && name != "" { // rows are always by rule
			return q, wrong("by: want key, model, day, month, got %.80q", name)
		}
	}
	return q, nil
}

func dayOf(t time.Time) uint32 { return uint32(t.Unix() / 86400) }

func dateOf(day uint32) time.Time { return time.Unix(int64(day)*86400, 0).UTC() }

// usageOf converts what a backend has found, for a moment.
func usageOf(q *backend.UsageQuery, found []backend.Usage, now time.Time) Usage {
	u := Usage{From: dateOf(q.From).Format(time.DateOnly), To: dateOf(q.To).Format(time.DateOnly), Rows: make([]UsageRow, len(found))}
	for i := range found {
		f, row := &found[i], &u.Rows[i]
		row.Rule, row.Model, row.Hits, row.Others = f.Rule, strings.ToValidUTF8(f.Model, "\uFFFD"), f.Hits, f.Others
		if q.Day {
			row.Day = dateOf(f.Period).Format(time.DateOnly)
		}
		if q.Month {
			row.Month = dateOf(f.Period).Format(monthLayout)
		}
		if !q.Key || f.Others {
			continue
		}
		row.Hash, row.Values = hex.EncodeToString(f.ID[:]), backend.ValuesOf(f.Name)
		if f.Budget.EndSeconds != 0 {
			row.Budget = budgetOf(&f.Budget, now)
		}
	}
	return u
}

// budgetOf describes a budget, and where it ends at its pace. A key without later reports has used
// no more.
func budgetOf(b *wire.Budget, now time.Time) *UsageBudget {
	unix := func(seconds uint64) time.Time { return time.Unix(int64(seconds), 0).UTC() }
	of := &UsageBudget{At: unix(b.AtSeconds), Used: b.Used, Quota: b.Quota, Start: unix(b.StartSeconds), End: unix(b.EndSeconds)}
	if !now.Before(of.End) {
		return of
	}
	if b.Used >= b.Quota {
		of.EndsAt, of.AtEnd = &of.At, &b.Used
		return of
	}
	elapsed, whole := max(now.Sub(of.Start), time.Second).Seconds(), of.End.Sub(of.Start).Seconds()
	atEnd := uint64(min(float64(b.Used)*whole/elapsed, wire.MaxHits))
	of.AtEnd = &atEnd
	if atEnd >= b.Quota {
		ends := of.Start.Add(time.Duration(elapsed * float64(b.Quota) / float64(b.Used) * float64(time.Second))).Truncate(time.Second)
		of.EndsAt = &ends
	}
	return of
}

// usedRules bounds the rules that the usage metrics count separately, so that a namespace leaves
// room for others.
type usedRules struct {
	mu    sync.Mutex
	known map[usedRule]bool
	room  share.Room[string]
}

type usedRule struct{ namespace, rule string }

const maxUsedRules = 512

// of returns a rule, or the empty rule if there are too many.
func (u *usedRules) of(r usedRule) usedRule {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.known[r] {
		if !u.room.Enter(r.namespace) {
			return usedRule{}
		}
		u.known[r] = true
	}
	return r
}

// account counts usage in the metrics.
func (m *metrics) account(out *backend.Reply) {
	m.usedFolded.Add(float64(out.Folded))
	for _, r := range out.Used.Rows {
		label, _ := wire.DecodeUsedLabel(r.Label)
		of := m.usedRules.of(usedRule{out.Used.Namespace, label.Rule})
		m.used.WithLabelValues(of.namespace, of.rule).Add(float64(max(0, r.Hits)))
		m.usedReturned.WithLabelValues(of.namespace, of.rule).Add(float64(max(0, -r.Hits)))
	}
}
