package simulate

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"weir/config"
	"weir/internal/must"
)

// lines are a log in the common format, of clients that come one after the other, a second apart.
func lines(clients ...string) io.Reader {
	at := time.Date(2026, 1, 2, 15, 4, 0, 0, time.UTC)
	var out strings.Builder
	for i, client := range clients {
		fmt.Fprintf(&out, "%s - - [%s] \"GET /login HTTP/1.1\" 200 1\n", client, at.Add(time.Duration(i)*time.Second).Format("02/Jan/2006:15:04:05 -0700"))
	}
	return strings.NewReader(out.String())
}

const (
	perClient = `{"name": "per-client", "key": ["client_ip", "path"], "limits": [{"limit": 2, "window": "1h", "algorithm": "fixed_window"}]}`
	perUser   = `{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "1h"}]}`
)

func TestReport(t *testing.T) {
	r := simulated(t, `{"rules": [`+perClient+`]}`, lines("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1", "2001:db8::1:1"))
	rule := r.Rules[0]
	if r.Requests != 6 || r.Refused != 2 || rule.RefusedByRule != 2 || rule.Keys != 3 || rule.RefusedKeys != 1 || r.To.Sub(r.From) != 5*time.Second {
		t.Errorf("%+v", r)
	}
	must.Same(t, rule.Worst, []KeyReport{{[]string{"10.0.0.1", "/login"}, 4, 2, 0.5}}, "")
	limit := rule.Limits[0]
	if limit.Least[0].Limit == nil || *limit.Least[0].Limit != 4 {
		t.Errorf("%+v: want 4, with which nothing is refused", limit.Least)
	}
	if i := slices.IndexFunc(limit.Curve, func(o Outcome) bool { return o.Configured }); i < 0 || limit.Curve[i].Refused != 2 || limit.Curve[i].Limit != 2 {
		t.Errorf("%+v: the configured limit is not what it is", limit.Curve)
	}
}

// One client that never stops decides which limit refuses few requests, and not which refuses few keys.
func TestOneClientDecides(t *testing.T) {
	var clients []string
	for i := range 200 {
		clients = append(clients, fmt.Sprintf("10.0.1.%d", i), "10.0.9.9")
	}
	r := simulated(t, `{"rules": [`+perClient+`]}`, lines(clients...))
	must.Equal(t, r.Headline, "10.0.9.9, /login has 100 % of the refusals, by per-client.", "")
	if least := r.Rules[0].Limits[0].Least[0]; *least.Limit != 196 || *least.KeysLimit != 1 {
		t.Errorf("at most 1 %% of requests: %d, of keys: %d; want 196 and 1", *least.Limit, *least.KeysLimit)
	}
}

// Hits that go back with their response are free for others, whatever the limit is. Requests in flight can't be
// told from a log of when they came.
func TestHitsThatGoBack(t *testing.T) {
	logins := strings.NewReplacer(`"path"]`, `"path"], "charge_when": {"status": ["401"]}`).Replace(perClient)
	log := must.Get(io.ReadAll(lines("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1")))(t)
	failed := strings.Replace(strings.Replace(strings.Replace(string(log), `" 200`, `" 401`, 1), "04:03 +0000] \"GET /login HTTP/1.1\" 200", "04:03 +0000] \"GET /login HTTP/1.1\" 401", 1),
		"04:04 +0000] \"GET /login HTTP/1.1\" 200", "04:04 +0000] \"GET /login HTTP/1.1\" 401", 1)
	r := simulated(t, `{"rules": [`+logins+`, {"name": "f", "limits": [{"limit": 1, "algorithm": "in_flight"}]}]}`, strings.NewReader(failed))
	// The two of the first and the fourth second fail, and the rest is refused.
	if r.Refused != 2 || len(r.Rules) != 2 || len(r.Rules[1].Missing) != 1 {
		t.Errorf("%+v", r)
	}
	if limit := r.Rules[0].Limits[0]; limit.Least[0].Limit == nil || *limit.Least[0].Limit != 4 {
		t.Errorf("%+v: want 4, three of which fail", limit.Least)
	}
}

// A shadow rule refuses nobody, and the report tells whom it would have.
func TestShadowRules(t *testing.T) {
	for _, more := range []string{``, `, "cost_on_response": "method"`} {
		shadow := strings.Replace(perClient, `"per-client"`, `"new", "mode": "shadow"`+more, 1)
		r := simulated(t, `{"rules": [`+shadow+`, `+perClient+`]}`, lines("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1"))
		if rule := r.Rules[0]; r.Refused != 1 || rule.Requests != 3 || rule.RefusedByRule != 0 || rule.Refused != 0 || rule.Keys != 2 {
			t.Errorf("%+v", r)
		}
		r = simulated(t, `{"rules": [`+shadow+`]}`, lines("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1"))
		if rule := r.Rules[0]; r.Refused != 0 || rule.Requests != 4 || rule.RefusedByRule != 1 || rule.Refused != 0 || rule.RefusedKeys != 1 {
			t.Errorf("%+v", r)
		}
		must.Equal(t, r.Headline, "No request is refused. 10.0.0.1, /login would have 100 % of the refusals of new, a shadow rule.", "")
		if least := r.Rules[0].Limits[0].Least[0].Limit; least == nil || *least != 3 {
			t.Errorf("%+v: want 3, with which nothing would be refused", r.Rules[0].Limits[0].Least)
		}
	}
}

// A rule that marks refuses nobody, and the report tells whom it marks.
func TestMarks(t *testing.T) {
	r := simulated(t, `{"rules": [`+strings.Replace(perClient, `"per-client"`, `"m", "on_full": "mark"`, 1)+`]}`, lines("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1"))
	if rule := r.Rules[0]; r.Refused != 0 || rule.Requests != 4 || rule.RefusedByRule != 1 || rule.Refused != 0 || rule.Does != "marked" {
		t.Errorf("%+v", r)
	}
	must.Equal(t, r.Headline, "No request is refused. 10.0.0.1, /login has 100 % of the marks of m.", "")
}

// A class has what it may have of a limit, and its requests count once, under its name.
func TestClasses(t *testing.T) {
	r := simulated(t, `{"rules": [{"name": "shared", "key": ["client_ip"], "limits": [{"limit": 10, "window": "1h", "algorithm": "fixed_window"}],
		"classes": {"by": "method", "of": {"GET": {"guaranteed": 0.3, "most": 0.4}}}}]}`, lines("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"))
	if want := []KeyReport{{[]string{"10.0.0.1", "GET"}, 5, 1, 0.2}}; r.Refused != 1 || r.Rules[0].Requests != 5 || !reflect.DeepEqual(r.Rules[0].Worst, want) {
		t.Errorf("%+v, want %+v", r.Rules[0], want)
	}
}

// A rule that needs what no log tells is left out, loudly: it would take all requests for one key.
func TestMissingParts(t *testing.T) {
	r := simulated(t, `{"rules": [`+perUser+`, `+perClient+`]}`, lines("10.0.0.1", "10.0.0.2"))
	if missing := r.Rules[0].Missing; !slices.Equal(missing, []string{"header x-user"}) || r.Rules[0].Requests != 0 || r.Refused != 0 {
		t.Errorf("%+v", r.Rules[0])
	}
	if len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "rule per-user is left out: the logs do not have header x-user") {
		t.Errorf("%q", r.Notes)
	}
	must.Equal(t, r.Rules[1].Requests, 2, "the other rule's requests")
	must.Equal(t, r.Rules[1].Keys, 2, "the other rule's keys")
	_, err := Run(t.Context(), &Options{Configuration: []byte(`{"rules": [` + perUser + `]}`), Logs: []Log{{"a.log", lines("10.0.0.1")}}})
	must.Is(t, err, ErrLogs, "")
	must.Contains(t, fmt.Sprint(err), "per-user needs header x-user", "")
	// Some lines tell and some do not: then these have none.
	log := `{"time": "2026-01-02T15:04:05Z", "path": "/", "x_user": "ann"}` + "\n" + `{"time": "2026-01-02T15:04:05.5Z", "path": "/"}`
	r = simulated(t, `{"rules": [`+perUser+`]}`, strings.NewReader(log))
	if r.Rules[0].Keys != 2 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "1 of 2 requests have no word on header x-user") {
		t.Errorf("%+v, %q", r.Rules[0], r.Notes)
	}
}

func TestNotes(t *testing.T) {
	var clients []string
	for i := range 3000 {
		clients = append(clients, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
	}
	r := simulated(t, `{"capacity": 1, "rules": [{"name": "r", "key": ["client_ip"], "cost": {"header": ":authority"}, "limits": [{"limit": 1, "window": "1s"}, {"limit": 9, "window": "1d"}]}]}`,
		lines(clients...), "1=header::authority")
	text := strings.Join(r.Notes, "\n")
	for _, want := range []string{"capacity 1 is too small", "3000 costs were not numbers", "access.log has times in whole seconds"} {
		must.Contains(t, text, want, "")
	}
}

func TestMistakes(t *testing.T) {
	run := func(configuration string, log io.Reader) error {
		_, err := Run(t.Context(), &Options{Configuration: []byte(configuration), Logs: []Log{{"a.log", log}}})
		return err
	}
	var mistakes config.Errors
	if err := run(`{"rules": []}`, lines()); !errors.As(err, &mistakes) {
		t.Error(err)
	}
	for log, want := range map[string]string{
		"":                              "no requests",
		"nonsense\n\x1b[2J\n":           `2 of 2 lines could not be read` + "\n" + `a.log:1: in none of the formats`,
		"\x1f\x8b\x08\x00 not gzip":     "a.log: ",
		"1 - - [x] \"GET / HTTP/1.1\" ": "1 of 1 lines",
	} {
		if err := run(`{"rules": [`+perClient+`]}`, strings.NewReader(log)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: %v, want %q", log, err, want)
		}
	}
}

// hostile is a log whose values try to get out of where they are shown.
func hostile(t *testing.T) *Report {
	t.Helper()
	var log strings.Builder
	for i := range 12 {
		line := must.Get(json.Marshal(map[string]string{
			"time": fmt.Sprintf("2026-01-02T15:04:%02dZ", i), "path": `/"><script>alert(1)</script>`,
			"x_user": "</code><img src=//evil.example onerror=alert(1)> {{.}} \x1b]0;\x07\r\u202e" + strings.Repeat("long ", 100),
		}))(t)
		log.Write(append(line, '\n'))
	}
	log.WriteString("<script>\x1b[2J\n")
	return simulated(t, `{"rules": [`+strings.Replace(perUser, `{"header": "x-user"}`, `{"header": "x-user"}, "path"`, 1)+`, {"name": "all", "limits": [{"limit": 5, "window": "1m"}]}]}`,
		strings.NewReader(log.String()))
}

// The page has no element that a log has written, and asks for nothing from outside.
func TestPage(t *testing.T) {
	var page strings.Builder
	must.OK(t, hostile(t).HTML(&page))
	root := must.Get(html.Parse(strings.NewReader(page.String())))(t)
	count, text, policy, style := map[string]int{}, "", "", ""
	for node := range root.Descendants() {
		switch node.Type {
		case html.TextNode:
			text += node.Data
		case html.ElementNode:
			count[node.Data]++
			if node.Data == "style" {
				style += node.FirstChild.Data
			}
			for _, a := range node.Attr {
				if a.Key == "content" && strings.Contains(a.Val, "-src") {
					policy += a.Val
				}
				if slices.Contains([]string{"src", "href", "xlink:href", "action", "data", "srcset"}, a.Key) || strings.HasPrefix(a.Key, "on") ||
					a.Key == "style" {
					t.Errorf("<%s %s=%q>", node.Data, a.Key, a.Val)
				}
			}
		case html.ErrorNode, html.DocumentNode, html.CommentNode, html.DoctypeNode, html.RawNode:
		}
	}
	for _, element := range []string{"script", "img", "link", "iframe", "image", "use", "object"} {
		must.Equal(t, count[element], 0, "of <%s>", element)
	}
	for _, want := range []string{"<img src=//evil.example onerror=alert(1)> {{.}}", "<script>alert(1)</script>", "5 as configured", "Most requests are refused in the ", `"name": "all"`, "light-dark("} {
		must.Contains(t, text, want, "")
	}
	// The time line, two curves, and a bar for each of two times four algorithms.
	if count["svg"] != 1+2+8 || count["pre"] != 1 || count["polyline"] != 4 || strings.Contains(page.String(), "NaN") || strings.Contains(page.String(), "ZgotmplZ") {
		t.Errorf("%v", count)
	}
	hash := sha256.Sum256([]byte(style))
	must.Equal(t, policy, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'; font-src data:; base-uri 'none'; form-action 'none'", "the policy is")
	for _, r := range page.String() {
		if r < ' ' && r != '\n' || r == 0x7f {
			t.Fatalf("control character %q", r)
		}
	}
}

// Nothing that a log has written controls the terminal.
func TestTextIsPlain(t *testing.T) {
	var out strings.Builder
	must.OK(t, hostile(t).Text(&out))
	for _, r := range out.String() {
		if r < ' ' && r != '\n' || r == 0x7f || r == 0x202e {
			t.Errorf("control character %q in\n%s", r, &out)
		}
	}
	if !strings.Contains(out.String(), `\x1b]0;`) || !strings.Contains(out.String(), "rule per-user") {
		t.Error(&out)
	}
}

// The names of the JSON are an interface.
func TestJSON(t *testing.T) {
	encoded := must.Get(json.Marshal(hostile(t)))(t)
	var decoded any
	must.OK(t, json.Unmarshal(encoded, &decoded))
	var names []string
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				names = append(names, prefix+name)
				walk(prefix+name+".", member)
			}
		case []any:
			for _, item := range v {
				walk(prefix, item)
			}
		}
	}
	walk("", decoded)
	slices.Sort(names)
	got := strings.Join(slices.Compact(names), " ")
	const outcome = `algorithm P.burst P.configured P.limit P.refused P.refused_keys P.refused_keys_share P.refused_share P.window`
	at := func(prefix string) string { return prefix + "." + strings.ReplaceAll(outcome, "P", prefix) }
	want := "from headline logs logs.examples logs.examples.excerpt logs.examples.line logs.examples.problem logs.format logs.gzip logs.late logs.lines " +
		"logs.most_behind_ms logs.name logs.out_of_order logs.requests logs.unreadable logs.without_request notes refused refused_share requests rules " +
		"rules.delayed rules.delayed_share rules.keys rules.limits rules.limits.algorithm rules.limits.algorithms " + at("rules.limits.algorithms") + " rules.limits.curve " +
		strings.Replace(at("rules.limits.curve"), " rules.limits.curve.burst", "", 1) +
		" rules.limits.least rules.limits.least.keys_limit rules.limits.least.limit rules.limits.least.share rules.limits.limit rules.limits.window rules.missing rules.name " +
		"rules.refused rules.refused_by_rule rules.refused_by_rule_share rules.refused_keys rules.refused_keys_share rules.refused_share rules.requests " +
		"rules.wait_p50_ms rules.wait_p99_ms rules.worst rules.worst.refused_by_rule rules.worst.refused_by_rule_share rules.worst.requests rules.worst.values timeline timeline.from timeline.refused timeline.requests timeline.seconds to"
	must.Equal(t, got, want, "")
}

// The events of a key are read again as they were added.
func TestHistory(t *testing.T) {
	k := &key{}
	events := []event{
		{at: 1767366245678901234, cost: 1}, {at: 1767366245678901234, cost: 0}, {at: 1767366245678901234, cost: ^uint64(0), charge: true},
		{at: 1767366245679901234, cost: 1}, {at: 1767366245680000000, cost: 1, charge: true}, {at: 7258118399999999999, cost: 300},
	}
	for _, e := range events {
		k.add(e)
	}
	var got []event
	for r := k.reader(); len(r.rest) > 0; {
		got = append(got, r.read(make([]event, 0, 4))...)
	}
	if !slices.Equal(got, events) || k.hits != ^uint64(0) {
		t.Errorf("%+v, want %+v", got, events)
	}
}

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		percent(0): "0 %", percent(1): "100 %", percent(0.5): "50.0 %", percent(0.01): "1 %", percent(0.00123): "0.12 %", percent(1e-9): "< 0.001 %",
		count(uint64(1234567)): "1,234,567", count(int64(0)): "0",
		bar(0): "", bar(1): strings.Repeat("█", 20), bar(0.0001): "▏", keyText(nil): "(all requests)", keyText([]string{"", "a\nb"}): `"", "a\nb"`,
	} {
		must.Equal(t, got, want, "")
	}
}
