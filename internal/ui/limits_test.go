package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"weir/internal/wire"
)

// post sends a page's change.
func (s *seen) post(path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(s.Context(), http.MethodPost, "http://127.0.0.1:9181"+path, strings.NewReader(body))
	r.Header.Set(Header, "1")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// overrides are those in force, each in a few words.
func (s *seen) overrides() (all []string) {
	s.Helper()
	found, err := s.view.backend.Overrides(s.Context(), "shop")
	if err != nil {
		s.Fatal(err)
	}
	for i := range found.List {
		text := fmt.Sprint(found.List[i].Rule, found.List[i].Values)
		for _, l := range found.List[i].Limits {
			text += fmt.Sprintf(" %d/%d", l.Max, l.WidthMillis)
		}
		all = append(all, text)
	}
	return all
}

// Any limit of any rule can be set, for the page's users or for a key, and goes back to that of the
// configuration. Overrides that others have set stay.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	s := see(t)
	set := func(body string) {
		t.Helper()
		if answer := s.post("/live/limit", body); answer.Code != http.StatusNoContent {
			t.Fatalf("%s: status %d: %s", body, answer.Code, answer.Body)
		}
	}
	want := func(overrides int, limits string, some ...string) {
		t.Helper()
		all := s.overrides()
		if len(all) != overrides {
			t.Errorf("%d overrides, want %d: %q", len(all), overrides, all)
		}
		for _, one := range some {
			if !slices.Contains(all, one) {
				t.Errorf("lacks %q: %q", one, all)
			}
		}
		if got := fmt.Sprint(s.view.state().Limits); got != limits {
			t.Errorf("pages are told %s, want %s", got, limits)
		}
	}
	set(`{"rule": "per-user", "limits": [25, null]}`)
	want(maxUsers, "map[per-user:[25 100]]", "per-user[user-1] 25/3600000 100/86400000", "per-user[user-50] 25/3600000 100/86400000")
	if got := s.view.state().Watched.Limit.Limit; got != 25 {
		t.Errorf("the watched limit is %d", got)
	}
	set(`{"rule": "per-user", "limits": [null, 0]}`)
	want(maxUsers, "map[per-user:[10 0]]", "per-user[user-1] 10/3600000 0/86400000")
	set(`{"rule": "per-user", "key": ["ann"], "limits": [1, 2]}`)
	set(`{"rule": "monthly", "limits": [9]}`)
	set(`{"rule": "login", "limits": [3]}`) // all the page's users have an address
	want(maxUsers+3, "map[login:[3] monthly:[9] per-user:[10 0]]", "per-user[ann] 1/3600000 2/86400000", "login[127.0.0.1] 3/60000")

	// Somebody else's override is none of the page's.
	other := wire.Override{Rule: "login", Values: []string{"192.0.2.9"}, Limits: []wire.OverrideLimit{{Max: 4, WidthMillis: 60_000}}}
	if _, err := s.view.backend.By(nil).SetOverrides(t.Context(), "shop", other); err != nil {
		t.Fatal(err)
	}
	set(`{"rule": "per-user", "limits": null}`)
	want(3, "map[login:[3] monthly:[9]]")
	set(`{"rule": "login"}`)
	set(`{"rule": "monthly", "limits": null}`)
	set(`{"rule": "monthly", "limits": null}`)
	want(1, "map[]", "login[192.0.2.9] 4/60000")
}

// Limits that can't be are refused with a reason, and change nothing.
func TestSetLimitsRefuses(t *testing.T) {
	t.Parallel()
	s := see(t)
	for body, want := range map[string]string{
		`{"rule": "none", "limits": [1]}`:                                                         `rule: the configuration has no rule "none"`,
		`{"rule": "alone", "limits": [1]}`:                                                        "rule alone: each node counts alone because sync_rate is below 0, so the backend does not know the key",
		`{"rule": "per-user", "limits": [1]}`:                                                     "limits: want 2, as rule per-user has, got 1",
		`{"rule": "per-user", "limits": []}`:                                                      "limits: want 2, as rule per-user has, got 0",
		`{"rule": "per-user", "limits": [null, null]}`:                                            "limits: want a number for at least one of the limits",
		`{"rule": "per-user", "limits": [1, 1000001]}`:                                            "limits[1]: want 0 to 1000000, got 1000001",
		`{"rule": "per-user", "limits": [-1, 1]}`:                                                 "json: cannot unmarshal",
		`{"rule": "per-user", "limits": [1.5, 1]}`:                                                "json: cannot unmarshal",
		`{"rule": "per-user", "key": ["a", "b"], "limits": [1, 1]}`:                               "key: want 1 values for the key of per-user, got 2",
		`{"rule": "login", "key": ["ann"], "limits": [1]}`:                                        `key: want an address for value 1 of the key of login, got "ann"`,
		`{"rule": "per-user", "limits": [1, 1], "until": "never"}`:                                "json: unknown field",
		`{"rule": "login", "limits": [1]} {"rule": "monthly"}`:                                    "want nothing after the JSON value",
		`{"rule": "monthly", "key": ["somebody"], "limits": [1]}`:                                 "key: want 0 values for the key of monthly, got 1",
		`{"rule": "per-user", "limits": [18446744073709551616, 1]}`:                               "json: cannot unmarshal",
		`{"rule": "per-user", "limits": [1, 1], "key": ["` + strings.Repeat("x", maxBody) + `"]}`: "http: request body too large",
	} {
		answer := s.post("/live/limit", body)
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != http.StatusBadRequest || !strings.HasPrefix(got, want) {
			t.Errorf("%.80s: status %d, %q, want %q", body, answer.Code, got, want)
		}
	}
	if all := s.overrides(); len(all) > 0 {
		t.Errorf("overrides are set: %q", all)
	}
}
