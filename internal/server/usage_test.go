package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// november is in the middle of a month.
var november = time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)

func dayOf(year int, month time.Month, day int) uint32 {
	return uint32(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

// usedBy is a row of what a key has used.
func usedBy(rule, name, model string, day uint32, hits int64, budget *wire.Budget) wire.UsedRow {
	l := wire.UsedLabel{Rule: rule, Model: model}
	if name != "" {
		l.ID = wire.ID{name[0]}
		l.Name = wire.AppendValue(nil, []byte(name), strings.HasSuffix(name, "~"))
	}
	r := wire.UsedRow{Label: wire.AppendUsedLabel(nil, &l), Day: day, Hits: hits}
	if budget != nil {
		r.Budget = wire.AppendBudget(nil, budget)
	}
	return r
}

func usageServer(t testing.TB, registry *prometheus.Registry) http.Handler {
	t.Helper()
	counters := memory.New(memory.Options{Now: func() time.Time { return november }})
	handler := server.Handler(counters, server.Options{Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return november }, Registry: registry})
	start, end := uint64(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Unix()), uint64(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).Unix())
	budget := func(used uint64) *wire.Budget {
		return &wire.Budget{AtSeconds: uint64(november.Unix()) - 60, StartSeconds: start, EndSeconds: end, Used: used, Quota: 1000}
	}
	old := budget(1)
	old.AtSeconds -= 86400
	body := wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: 1, Sequence: 1, Rows: []wire.UsedRow{
		usedBy("dollars", "ann", "gpt-5", dayOf(2026, 11, 3), 700, budget(750)),
		usedBy("dollars", "ann", "gpt-5-mini", dayOf(2026, 11, 4), 50, old),
		usedBy("dollars", "bob~", "gpt-5", dayOf(2026, 11, 4), 250, budget(250)),
		usedBy("dollars", "cat", "gpt-5", dayOf(2026, 11, 16), 1000, budget(1000)),
		usedBy("dollars", "", "", dayOf(2026, 11, 4), 9, nil),
		usedBy("tokens", "ann", "", dayOf(2026, 11, 1), 3, nil),
		usedBy("dollars", "ann", "gpt-5", dayOf(2026, 10, 31), 40, nil),
	}})
	for range 2 { // as it counts once
		if code, answer := served(t, handler, "POST", wire.PushPath, body); code != http.StatusOK || !wire.AnswersUsed([]byte(answer), 1) {
			t.Fatalf("status %d, %q", code, answer)
		}
	}
	return handler
}

func usageAt(t testing.TB, handler http.Handler, query string) (u server.Usage, code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, server.UsagePath, nil)
	r.URL.RawQuery = query
	handler.ServeHTTP(w, r)
	body = w.Body.String()
	must.OKf(t, json.Unmarshal([]byte(body), &u), "%s", body)
	return u, w.Code, body
}

func TestUsage(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler := usageServer(t, registry)
	for _, test := range []struct{ query, want string }{
		{"", "dollars cat 1000; dollars ann 750; dollars bob~ 250; dollars others 9; tokens ann 3; "},
		{"rule=tokens", "tokens ann 3; "},
		{"rule=none", ""},
		{"by=key,model&rule=dollars", "dollars cat gpt-5 1000; dollars ann gpt-5 700; dollars bob~ gpt-5 250; dollars ann gpt-5-mini 50; dollars others 9; "},
		{"by=model&rule=dollars", "dollars gpt-5 1950; dollars gpt-5-mini 50; dollars 9; "},
		{"by=", "dollars 2009; tokens 3; "},
		{"by=day&rule=dollars&month=2026-11", "2026-11-03 dollars 700; 2026-11-04 dollars 309; 2026-11-16 dollars 1000; "},
		{"by=month&month=2026-09..2026-11&rule=dollars", "2026-10 dollars 40; 2026-11 dollars 2009; "},
		{"month=2026-10", "dollars ann 40; "},
		{"day=2026-11-04&by=key,model,day", "2026-11-04 dollars bob~ gpt-5 250; 2026-11-04 dollars ann gpt-5-mini 50; 2026-11-04 dollars others 9; "},
		{"day=2026-11-05", ""},
		{"month=2024-01", ""},
	} {
		u, code, body := usageAt(t, handler, strings.TrimSuffix("namespace=shop&"+test.query, "&"))
		got := ""
		for _, r := range u.Rows {
			key := ""
			for _, v := range r.Values {
				key = v.Text
				must.Equal(t, v.Cut, strings.HasSuffix(key, "~"), "%q: cut", key)
			}
			if r.Others {
				key = "others"
			}
			got += strings.Join(strings.Fields(fmt.Sprint(r.Month, " ", r.Day, " ", r.Rule, " ", key, " ", r.Model, " ", r.Hits)), " ") + "; "
		}
		must.Equal(t, code, http.StatusOK, "%s: status, with %s", test.query, body)
		must.Equal(t, got, test.want, "%s", test.query)
	}
	u, _, _ := usageAt(t, handler, "namespace=shop&day=2026-11-04")
	must.Equal(t, u.From+" "+u.To, "2026-11-04 2026-11-04", "the day")
	// Half of the month has passed.
	u, _, _ = usageAt(t, handler, "namespace=shop&rule=dollars")
	must.Equal(t, u.From, "2026-11-01", "from")
	must.Equal(t, u.To, "2026-11-30", "to")
	for i, want := range []string{"1000 of 1000, 1000 at the end, ends 2026-11-15T23:59:00Z", "750 of 1000, 1500 at the end, ends 2026-11-21T00:00:00Z", "250 of 1000, 500 at the end"} {
		b := u.Rows[i].Budget
		got := fmt.Sprintf("%d of %d, %d at the end", b.Used, b.Quota, *b.AtEnd)
		if b.EndsAt != nil {
			got += ", ends " + b.EndsAt.Format(time.RFC3339)
		}
		must.Equal(t, got, want, "")
	}
	must.Report(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP weir_used_hits_total Hits that nodes have told of as used, by namespace and rule; beyond 512 of these both are empty.
# TYPE weir_used_hits_total counter
weir_used_hits_total{weir_namespace="shop",weir_rule="dollars"} 2049
weir_used_hits_total{weir_namespace="shop",weir_rule="tokens"} 3
`), "weir_used_hits_total"))
	for query, want := range map[string]string{
		"namespace=shop&by=hour":                 "by: want key, model, day, month",
		"namespace=shop&month=11":                "month: want a month such as 2026-11",
		"namespace=shop&month=2026-12..2026-11":  "month: want a month such as",
		"namespace=shop&month=1999-01..2026-11":  "month: want a month such as",
		"namespace=shop&month=2026-13":           "month: want a month such as",
		"namespace=shop&days=1":                  `want namespace, rule, month, day or by, got`,
		"namespace=shop&day=2026-11":             "day: want a day such as 2026-11-16, and no month, got",
		"namespace=shop&day=1969-12-31":          "day: want a day such as",
		"namespace=shop&day=2026-11-04&month=":   "day: want a day such as",
		"namespace=shop&by=key&by=day":           "by: want it only once",
		"namespace=%20":                          "namespace: want 1 to 64",
		"namespace=shop&month=2026-11-01..2026":  "month: want a month such as",
		"namespace=shop&rule=a&rule=b&month=1-1": ": want it only once",
	} {
		if _, code, body := usageAt(t, handler, query); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
}

// A budget that somebody has made up does not keep the usage of others from being told: JSON has no time after the
// year 9999.
func TestUsageOfAWindowWithoutEnd(t *testing.T) {
	handler := usageServer(t, nil)
	for i, b := range []wire.Budget{
		{AtSeconds: 1, StartSeconds: 1, EndSeconds: wire.MaxHits, Used: 1, Quota: 1000},
		{AtSeconds: wire.MaxHits, StartSeconds: 1, EndSeconds: 2, Used: 1, Quota: 1000},
		{AtSeconds: 1, StartSeconds: 0, EndSeconds: wire.MaxUsedDay * 24 * 3600, Used: 1, Quota: wire.MaxHits},
		{AtSeconds: 1, StartSeconds: 0, EndSeconds: wire.MaxUsedDay * 24 * 3600, Used: wire.MaxHits - 1, Quota: wire.MaxHits},
	} {
		body := wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: 2, Sequence: uint64(i + 1), Rows: []wire.UsedRow{
			usedBy("dollars", "eve", "", dayOf(2026, 11, 3), 5, &b),
		}})
		served(t, handler, "POST", wire.PushPath, body)
		if u, code, body := usageAt(t, handler, "namespace=shop&rule=dollars"); code != http.StatusOK || len(u.Rows) < 4 {
			t.Errorf("budget %d: %d %s", i, code, body)
		}
	}
}

// Labels of metrics are bounded, whatever rules somebody makes up.
func TestUsageMetricsAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler := usageServer(t, registry)
	for i := range 300 {
		body := wire.AppendUsed(nil, &wire.Used{Namespace: fmt.Sprint("n", i), Sender: 1, Sequence: 1, Rows: []wire.UsedRow{
			usedBy("r", "ann", "", dayOf(2026, 11, 3), 5, nil), usedBy("s", "ann", "", dayOf(2026, 11, 3), -2, nil),
		}})
		served(t, handler, "POST", wire.PushPath, body)
	}
	for _, name := range []string{"weir_used_hits_total", "weir_used_returned_hits_total"} {
		if n, err := testutil.GatherAndCount(registry, name); err != nil || n > 513 || n < 100 {
			t.Errorf("%s has %d series: %v", name, n, err)
		}
	}
}

// A namespace that makes up rules leaves series for the rules of others.
func TestUsageMetricsAreShared(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler := usageServer(t, registry)
	for _, namespace := range []string{"large", "small"} {
		var rows []wire.UsedRow
		for i := range 300 {
			rows = append(rows, usedBy(fmt.Sprint("rule-", i), "ann", "", dayOf(2026, 11, 3), 5, nil))
		}
		if namespace == "small" {
			rows = rows[:20]
		}
		body := wire.AppendUsed(nil, &wire.Used{Namespace: namespace, Sender: 1, Sequence: 1, Rows: rows})
		served(t, handler, "POST", wire.PushPath, body)
	}
	small := 0
	for _, family := range must.Get(registry.Gather())(t) {
		for _, m := range family.GetMetric() {
			if family.GetName() == "weir_used_hits_total" && m.GetLabel()[0].GetValue() == "small" {
				small++
			}
		}
	}
	must.Equal(t, small, 20, "series of the small namespace")
}

// Whatever is asked, the answer is usage, or says what is wrong.
func FuzzUsage(f *testing.F) {
	handler := usageServer(f, nil)
	for _, query := range []string{"namespace=shop", "namespace=shop&by=key,model,day,month&rule=dollars", "namespace=shop&month=2026-01..2026-11", "namespace=shop&month=2026-11;by=x&%zz", "namespace=shop&day=2026-11-16"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		u, code, body := usageAt(t, handler, query)
		switch code {
		case http.StatusOK:
			if len(u.From) != 10 || len(u.To) != 10 || u.From > u.To || u.Rows == nil {
				t.Fatalf("%q: %s", query, body)
			}
		case http.StatusBadRequest:
			must.Contains(t, body, "want ", "%q", query)
		default:
			t.Fatalf("%q: %d %s", query, code, body)
		}
	})
}

// A store that fails is to blame, and what was told is told again.
func TestUsageOfAStoreThatFails(t *testing.T) {
	handler := server.Handler(&usageFails{memory.New(memory.Options{})}, server.Options{Logger: slog.New(slog.DiscardHandler)})
	body := wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: 1, Sequence: 1})
	code, _ := served(t, handler, "POST", wire.PushPath, body)
	must.Equal(t, code, http.StatusServiceUnavailable, "told: status")
	_, code, _ = usageAt(t, handler, "namespace=shop")
	must.Equal(t, code, http.StatusServiceUnavailable, "asked: status")
}

// usageFails is a store that can't keep or tell usage.
type usageFails struct{ store.Store }

func (*usageFails) Account(context.Context, *wire.Used) (store.Accounted, error) {
	return store.Accounted{}, errors.New("away")
}

func (*usageFails) Used(context.Context, string, uint32, uint32, func(wire.UsedRow) error) error {
	return errors.New("away")
}

// What takes too long to read is no failure of the store, which has told some of it. A store that tells nothing fails.
func TestUsageThatTakesTooLong(t *testing.T) {
	row := usedBy("dollars", "ann", "", dayOf(2026, 11, 3), 5, nil)
	for _, test := range []struct {
		rows             []wire.UsedRow
		problem, failure string
	}{
		{[]wire.UsedRow{row}, "so much takes longer than 5s to read: ask for fewer months or a day", "0"},
		{nil, "the store failed", "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			counters := &usageLasts{memory.New(memory.Options{}), test.rows}
			handler := server.Handler(counters, server.Options{Logger: slog.New(slog.DiscardHandler)})
			_, code, body := usageAt(t, handler, "namespace=shop&rule=other")
			must.Equal(t, code, http.StatusServiceUnavailable, "status")
			must.Contains(t, body, test.problem, "the answer")
			wantMetrics(t, handler, "weir_store_errors_total "+test.failure)
		})
	}
}

// usageLasts is a store that tells some rows, and more until nobody waits for it.
type usageLasts struct {
	store.Store
	rows []wire.UsedRow
}

func (u *usageLasts) Used(ctx context.Context, _ string, _, _ uint32, visit func(wire.UsedRow) error) error {
	for _, r := range u.rows {
		if err := visit(r); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}
