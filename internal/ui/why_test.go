package ui

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/config"
	"weir/internal/must"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

const whyConfiguration = `{"namespace": "shop", "backend": {"cluster": "weir", "key_secret": "0123456789abcdef0123456789abcdef"}, "rules": [
	{"name": "per-user", "key": [{"header": "x-user"}], "limits": [
		{"limit": 10, "window": "1h", "algorithm": "fixed_window"}, {"limit": 100, "window": "1d", "algorithm": "fixed_window"}],
	 "overrides": {"keys": [{"key": ["gold"], "limits": [
		{"limit": 20, "window": "1h", "algorithm": "fixed_window"}, {"limit": 200, "window": "1d", "algorithm": "fixed_window"}]}]}},
	{"name": "login", "key": ["client_ip"], "block": "10m", "limits": [{"limit": 5, "window": "1m", "algorithm": "fixed_window"}]},
	{"name": "monthly", "limits": [{"limit": 7, "window": "month", "algorithm": "fixed_window"}]},
	{"name": "tokens", "key": [{"header": "x-team"}], "limits": [{"limit": 100, "window": "1h", "algorithm": "fixed_window"}],
	 "classes": {"by": {"header": "x-class"}, "of": {"batch": {"guaranteed": 0.1, "most": 0.5}}},
	 "overrides": {"keys": [{"key": ["gold"], "limits": [{"limit": 200, "window": "1h", "algorithm": "fixed_window"}]}]}},
	{"name": "alone", "sync_rate": -1, "limits": [{"limit": 1, "window": "1s"}]}]}`

// epoch is half an hour into an hour, twelve hours into a day, and 15 days and a half into a month.
var epoch = time.Date(2026, 1, 16, 12, 30, 0, 0, time.UTC)

// seen is a view over a store whose clock stands still.
type seen struct {
	*testing.T
	view    *View
	handler http.Handler
	pushed  uint64
}

func see(t *testing.T) *seen {
	t.Helper()
	parsed := must.Get(config.Parse([]byte(whyConfiguration)))(t)
	now := func() time.Time { return epoch }
	v := New(Options{Config: parsed, Nodes: []string{"127.0.0.1:1"}, Lines: &Lines{}, Store: memory.New(memory.Options{Now: now}), Page: http.NotFoundHandler(), Now: now, Logger: slog.New(slog.DiscardHandler)})
	return &seen{T: t, view: v, handler: v.Handler("127.0.0.1:9181")}
}

// hit has hits of a rule's limit counted for a key.
func (s *seen) hit(rule int, key []string, l *window.Limit, hits int64) {
	s.Helper()
	width, at := uint64(l.WidthAt(epoch.UnixNano())/window.MinWidth), uint64(epoch.UnixNano())
	item := wire.Item{
		LimitCounter: wire.LimitCounter{ID: s.view.identity(&s.view.o.Config.Rules[rule], key), Kind: uint8(l.Kind), WidthMillis: width, Precision: uint64(l.Precision), Ordinal: l.Ordinal},
		Newest:       at / (width * 1e6), Hits: []int64{hits},
	}
	if l.Kind.Bucketed() {
		item.Newest, item.Ages, item.Limit = at/uint64(l.Precision), []uint64{0}, l.Max
	}
	s.pushed++
	must.Get(s.view.backend.Push(s.Context(), wire.AppendPush(nil, &wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: s.pushed, Floor: s.pushed, Items: []wire.Item{item}})))(s)
}

// ask asks the view, with headers, each behind its name. The header host is the host.
func (s *seen) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(s.Context(), method, "http://127.0.0.1:9181"+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = cmp.Or(r.Header.Get("host"), r.Host)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// told is how a key stands, in a line.
func (s *seen) told(query url.Values) string {
	s.Helper()
	answer := s.ask("GET", "/live/why?"+query.Encode(), "")
	var why Why
	if err := json.Unmarshal(answer.Body.Bytes(), &why); err != nil || answer.Code != http.StatusOK {
		s.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	text := fmt.Sprint(why.Key)
	if why.Listed {
		text += " listed"
	}
	if o := why.Override; o != nil {
		text += " overridden"
		if o.Pattern != "" {
			text += " of " + o.Pattern
		} else if o.Mode != "" {
			text += " of rule"
		}
	}
	if why.Mode != "" {
		text += " " + why.Mode
	}
	for _, l := range why.Limits {
		text += fmt.Sprintf("; %d", l.Used)
		if l.Limit != nil {
			text += fmt.Sprintf(" of %d, %d left", *l.Limit, *l.Left)
		}
		if l.NextMS != nil {
			text += fmt.Sprint(", next ", time.Duration(*l.NextMS)*time.Millisecond)
		}
		if l.ResetMS != nil {
			text += fmt.Sprint(", ends ", time.Duration(*l.ResetMS)*time.Millisecond)
		}
	}
	return text
}

// A key is asked for by its values or by its hash: the page is told which of its limits are used up, when
// there is room, and by which limits it is decided.
func TestWhy(t *testing.T) {
	t.Parallel()
	s := see(t)
	rules := s.view.o.Config.Rules
	want := func(query url.Values, want string) {
		t.Helper()
		must.Equal(t, s.told(query), want, "%v", query)
	}
	ann := url.Values{"rule": {"per-user"}, "key": {"ann"}}
	id := s.view.identity(&rules[0], []string{"ann"})
	byHash := url.Values{"rule": {"per-user"}, "id": {hex.EncodeToString(id[:])}}
	want(ann, "[ann]; 0 of 10, 10 left; 0 of 100, 100 left")
	for i, hits := range []int64{10, 30} {
		s.hit(0, []string{"ann"}, &rules[0].Limits[i], hits)
	}
	const used = "; 10 of 10, 0 left, next 30m0s, ends 30m0s; 30 of 100, 70 left, next 11h30m0s, ends 11h30m0s"
	want(ann, "[ann]"+used)
	want(byHash, "[]"+used)

	// An override has a name for the hash.
	set := wire.Override{Rule: "per-user", Values: []string{"ann"}, Limits: []wire.OverrideLimit{{Max: 15, WidthMillis: 3_600_000}, {Max: 0, WidthMillis: 86_400_000}}}
	network := wire.Override{Rule: "login", Values: []string{"2001:db8::/64"}, Limits: []wire.OverrideLimit{{Max: 2, WidthMillis: 60_000}}}
	must.Get(s.view.backend.By(nil).SetOverrides(t.Context(), "shop", set, network))(t)
	for _, query := range []url.Values{ann, byHash} {
		want(query, "[ann] overridden; 10 of 15, 5 left, next 30m0s, ends 30m0s; 30 of 0, 0 left, ends 11h30m0s")
	}
	want(url.Values{"rule": {"per-user"}, "key": {"gold"}}, "[gold] listed; 0 of 20, 20 left; 0 of 200, 200 left")
	want(url.Values{"rule": {"login"}, "key": {"2001:db8::7"}}, "[2001:db8::7] overridden; 0 of 2, 2 left")

	// A block is no limit of the rule, and comes after them.
	block := window.NewBlock(int64(10 * time.Minute))
	s.hit(1, []string{"192.0.2.1"}, &block, 1)
	want(url.Values{"rule": {"login"}, "key": {"192.0.2.1"}}, "[192.0.2.1]; 0 of 5, 5 left; 1, ends 10m18.75s")

	s.hit(2, nil, &rules[2].Limits[0], 7)
	want(url.Values{"rule": {"monthly"}}, "[]; 7 of 7, 0 left, next 371h30m0s, ends 371h30m0s")
}

// The page tells of the override that nodes go by. They leave out overrides that do not fit the rule, and if
// two name the same key in other words, the first is in force.
func TestWhyAsNodesDecide(t *testing.T) {
	t.Parallel()
	s := see(t)
	hour := func(hits uint64) wire.OverrideLimit { return wire.OverrideLimit{Max: hits, WidthMillis: 3_600_000} }
	network := func(values string, hits uint64) wire.Override {
		return wire.Override{Rule: "login", Values: []string{values}, Limits: []wire.OverrideLimit{{Max: hits, WidthMillis: 60_000}}}
	}
	set := []wire.Override{
		{Rule: "per-user", Values: []string{"ann"}, Limits: []wire.OverrideLimit{hour(1)}}, // the rule has two limits
		network("2001:db8::/64", 2), network("2001:db8::7", 4),
	}
	must.Get(s.view.backend.By(nil).SetOverrides(t.Context(), "shop", set...))(t)
	for key, want := range map[string]string{
		"per-user ann":      "[ann]; 0 of 10, 10 left; 0 of 100, 100 left",
		"login 2001:db8::9": "[2001:db8::9] overridden; 0 of 2, 2 left",
	} {
		rule, value, _ := strings.Cut(key, " ")
		must.Equal(t, s.told(url.Values{"rule": {rule}, "key": {value}}), want, "%s", key)
	}
	// A pattern goes behind a key's own override, and before what is set for the whole rule.
	wider := []wire.Override{
		{Rule: "login", Mode: wire.OfKeys, Values: []string{"/2001:db8::/32"}, Limits: []wire.OverrideLimit{{Max: 3, WidthMillis: 60_000}}},
		{Rule: "login", Mode: wire.Shadow, Limits: []wire.OverrideLimit{{Max: 6, WidthMillis: 60_000}}},
		{Rule: "monthly", Mode: wire.Off},
	}
	must.Get(s.view.backend.By(nil).SetOverrides(t.Context(), "shop", wider...))(t)
	for key, want := range map[string]string{
		"login 2001:db8::9":   "[2001:db8::9] overridden shadow; 0 of 2, 2 left",
		"login 2001:db8:1::9": "[2001:db8:1::9] overridden of network shadow; 0 of 3, 3 left",
		"login 192.0.2.1":     "[192.0.2.1] overridden of rule shadow; 0 of 6, 6 left",
		"monthly":             "[] overridden of rule off; 0 of 7, 7 left",
	} {
		query := url.Values{}
		for i, word := range strings.Fields(key) {
			query.Add([]string{"rule", "key"}[i], word)
		}
		must.Equal(t, s.told(query), want, "%s", key)
	}
}

// An override is of all parts of a rule with classes, each of which has a counter and is found by its hash, too.
func TestWhyOfClasses(t *testing.T) {
	t.Parallel()
	s := see(t)
	rule := &s.view.o.Config.Rules[3]
	set := []wire.Override{
		{Rule: "tokens", Values: []string{"red", ""}, Limits: []wire.OverrideLimit{{Max: 7, WidthMillis: 3_600_000}}},
		{Rule: "tokens", Mode: wire.OfKeys, Values: []string{"^blue-", "="}, Limits: []wire.OverrideLimit{{Max: 8, WidthMillis: 3_600_000}}},
	}
	must.Get(s.view.backend.By(nil).SetOverrides(t.Context(), "shop", set...))(t)
	must.Equal(t, s.told(url.Values{"rule": {"tokens"}, "key": {"blue-1", "batch"}}), "[blue-1 batch] overridden of prefix; 0 of 8, 8 left", "")
	for _, part := range []string{"", "batch", "batch+"} {
		for team, want := range map[string]string{"red": "overridden; 0 of 7, 7 left", "gold": "listed; 0 of 200, 200 left"} {
			id := s.view.identity(rule, []string{team, part})
			for _, query := range []url.Values{{"key": {team, part}}, {"id": {hex.EncodeToString(id[:])}}} {
				query.Set("rule", "tokens")
				must.Equal(t, s.told(query), fmt.Sprintf("[%s %s] %s", team, part, want), "%v", query)
			}
		}
	}
}

// A question that can't be answered says why, and no page of another site has an answer.
func TestWhyRefuses(t *testing.T) {
	t.Parallel()
	s := see(t)
	for _, test := range []struct {
		query url.Values
		want  string
	}{
		{url.Values{}, `rule: the configuration has no rule ""`},
		{url.Values{"rule": {"<b>"}}, `rule: the configuration has no rule "<b>"`},
		{url.Values{"rule": {"alone"}}, "rule alone: each node counts alone because sync_rate is below 0, so the backend does not know the key"},
		{url.Values{"rule": {"per-user"}}, "key: want 1 values for the key of per-user, got 0"},
		{url.Values{"rule": {"per-user"}, "key": {"a", "b"}}, "key: want 1 values for the key of per-user, got 2"},
		{url.Values{"rule": {"login"}, "key": {"ann"}}, `key: want an address for value 1 of the key of login, got "ann"`},
		{url.Values{"rule": {"login"}, "id": {"0123"}}, `id: want 32 hexadecimal digits, got "0123"`},
		{url.Values{"rule": {"login"}, "id": {strings.Repeat("g", 32)}}, `id: want 32 hexadecimal digits, got "gggggggggggggggggggggggggggggggg"`},
	} {
		answer := s.ask("GET", "/live/why?"+test.query.Encode(), "")
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != http.StatusBadRequest || got != test.want {
			t.Errorf("%v: status %d, %s, want %s", test.query, answer.Code, got, test.want)
		}
		if kind := answer.Header().Get("content-type"); !strings.HasPrefix(kind, "text/plain") {
			t.Errorf("a refusal is %s", kind)
		}
	}
	for header, value := range map[string]string{"origin": "http://evil.test", "host": "evil.test"} {
		if w := s.ask("GET", "/live/why?rule=per-user&key=ann", "", header, value); w.Code < 400 || strings.Contains(w.Body.String(), "limits") {
			t.Errorf("%s %s: status %d, %s", header, value, w.Code, w.Body)
		}
	}
}
