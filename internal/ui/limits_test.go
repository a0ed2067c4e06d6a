package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/wire"
)

// overrides are those in force, each in a few words.
func (s *seen) overrides() (all []string) {
	s.Helper()
	found := must.Get(s.view.backend.Overrides(s.Context(), "shop"))(s)
	for i := range found.List {
		text := fmt.Sprint(found.List[i].Rule, found.List[i].Values)
		for _, l := range found.List[i].Limits {
			text += fmt.Sprintf(" %d/%d", l.Max, l.WidthMillis)
		}
		all = append(all, text)
	}
	return all
}

// Any limit of any rule can be set for the page's users, and goes back to that of the configuration.
// Overrides that others have set stay. Each change is recorded once, however many users it is for.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	s := see(t)
	set := func(body string) {
		t.Helper()
		answer := s.ask("POST", "/live/limit", body, Header, "1")
		must.EqualOrEnd(t, answer.Code, http.StatusNoContent, "%s: status, with %s", body, answer.Body)
	}
	want := func(overrides int, limits string, some ...string) {
		t.Helper()
		all := s.overrides()
		must.Equal(t, len(all), overrides, "overrides: %q", all)
		for _, one := range some {
			must.Equal(t, slices.Contains(all, one), true, "lacks %q: %q", one, all)
		}
		must.Equal(t, fmt.Sprint(s.view.state().Limits), limits, "pages are told")
	}
	set(`{"rule": "per-user", "limits": [25, null]}`)
	want(maxUsers, "map[per-user:[25 100]]", "per-user[user-1] 25/3600000 100/86400000", "per-user[user-50] 25/3600000 100/86400000")
	set(`{"rule": "per-user", "limits": [null, 0]}`)
	want(maxUsers, "map[per-user:[10 0]]", "per-user[user-1] 10/3600000 0/86400000")
	set(`{"rule": "monthly", "limits": [9]}`)
	set(`{"rule": "login", "limits": [3]}`) // all the page's users have an address
	want(maxUsers+2, "map[login:[3] monthly:[9] per-user:[10 0]]", "login[127.0.0.1] 3/60000")

	// Somebody else's override is none of the page's.
	other := wire.Override{Rule: "login", Values: []string{"192.0.2.9"}, Limits: []wire.OverrideLimit{{Max: 4, WidthMillis: 60_000}}}
	must.Get(s.view.backend.By(nil).SetOverrides(t.Context(), "shop", other))(t)
	set(`{"rule": "per-user", "limits": null}`)
	want(3, "map[login:[3] monthly:[9]]")
	set(`{"rule": "login"}`)
	set(`{"rule": "monthly", "limits": null}`)
	set(`{"rule": "monthly", "limits": null}`)
	want(1, "map[]", "login[192.0.2.9] 4/60000")
	records := must.Get(s.view.backend.Changes(t.Context(), "shop", time.Time{}))(t)
	must.EqualOrEnd(t, len(records), 7, "changes that are recorded: %+v", records)
	for i, first := range []string{"", "25/1h 100/1d", "", "", "10/1h 0/1d", "3/1m", "9/31d"} {
		r := &records[i]
		if r.Name != "page" || r.Reason == "" || !r.Made || r.Of[0].Before != first {
			t.Errorf("change %d is %+v, want a reason, and %q before", i, r, first)
		}
	}
}

// The page's actions on a key are those of weir serve: they are recorded with their reason, and want
// the page's header.
func TestActions(t *testing.T) {
	t.Parallel()
	s := see(t)
	rule := &s.view.o.Config.Rules[0]
	s.hit(0, []string{"ann"}, &rule.Limits[0], 10)
	id := s.view.identity(rule, []string{"ann"})
	override := `{"overrides": [{"rule": "per-user", "key": ["ann"], "limits": [{"limit": 1, "width_ms": 3600000}, {"limit": 2, "width_ms": 86400000}]}]}`
	do := func(method, path, header, body string) *httptest.ResponseRecorder {
		return s.ask(method, "/v1/"+path, body, Header, header, "content-type", "application/json")
	}
	for _, call := range []struct{ method, path, body string }{
		{"PUT", "overrides?namespace=shop&force=1&reason=import", override},
		{"POST", "counter?namespace=shop&reason=import", fmt.Sprintf(`{"id": "%x", "rule": "per-user", "key": ["ann"], "reset": true}`, id)},
		{"DELETE", "overrides?namespace=shop&rule=per-user&key=ann&reason=done", ""},
	} {
		must.Equal(t, do(call.method, call.path, "", call.body).Code, http.StatusForbidden, "%s without the header: status", call.path)
		answer := do(call.method, call.path, "1", call.body)
		must.Equal(t, answer.Code, http.StatusOK, "%s: status, with %s", call.path, answer.Body)
	}
	var told server.Changes
	answer := do("GET", "changes?namespace=shop", "", "")
	must.OK(t, json.Unmarshal(answer.Body.Bytes(), &told))
	got := ""
	for i := range told.Changes {
		r := &told.Changes[i]
		got += fmt.Sprintf("%s: %s (%s), ", r.What, r.Reason, r.Of[0].Before)
	}
	must.Equal(t, got, "set override: import (), reset counter: import (10 in 1h), remove override: done (1/1h 2/1d), ", "the changes are")
	must.Equal(t, do("POST", "push", "1", "").Code, http.StatusNotFound, "a push to the page: status")
}

// Limits that can't be are refused with a reason, and change nothing.
func TestSetLimitsRefuses(t *testing.T) {
	t.Parallel()
	s := see(t)
	for body, want := range map[string]string{
		`{"rule": "none", "limits": [1]}`:                                    `rule: the configuration has no rule "none"`,
		`{"rule": "alone", "limits": [1]}`:                                   "rule alone: each node counts alone because sync_rate is below 0, so the backend does not know the key",
		`{"rule": "per-user", "limits": [1]}`:                                "limits: want 2, as rule per-user has, got 1",
		`{"rule": "per-user", "limits": []}`:                                 "limits: want 2, as rule per-user has, got 0",
		`{"rule": "per-user", "limits": [null, null]}`:                       "limits: want a number for at least one of the limits",
		`{"rule": "per-user", "limits": [1, 1000001]}`:                       "limits[1]: want 0 to 1000000, got 1000001",
		`{"rule": "per-user", "limits": [-1, 1]}`:                            "json: cannot unmarshal",
		`{"rule": "per-user", "limits": [1.5, 1]}`:                           "json: cannot unmarshal",
		`{"rule": "per-user", "key": ["ann"], "limits": [1, 1]}`:             "json: unknown field",
		`{"rule": "per-user", "limits": [1, 1], "until": "never"}`:           "json: unknown field",
		`{"rule": "login", "limits": [1]} {"rule": "monthly"}`:               "want nothing after the JSON value",
		`{"rule": "per-user", "limits": [18446744073709551616, 1]}`:          "json: cannot unmarshal",
		`{"limits": [1, 1], "rule": "` + strings.Repeat("x", maxBody) + `"}`: "http: request body too large",
	} {
		answer := s.ask("POST", "/live/limit", body, Header, "1")
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != http.StatusBadRequest || !strings.HasPrefix(got, want) {
			t.Errorf("%.80s: status %d, %q, want %q", body, answer.Code, got, want)
		}
	}
	must.Same(t, s.overrides(), nil, "overrides are set")
}
