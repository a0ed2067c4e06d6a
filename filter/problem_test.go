package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/must"
)

// Policies tell the unit of what is no number of requests.
func TestQuotaUnits(t *testing.T) {
	for fields, want := range map[string]string{
		``:                                       `"r";q=9;w=60`,
		`, "cost": {"header": "x-cost"}`:         `"r";q=9;w=60`,
		`, "cost": {"header": "content-length"}`: `"r";q=9;qu="content-bytes";w=60`,
		`, "cost_on_response": "openai"`:         `"r";q=9;qu="tokens";w=60`,
		`, "cost_on_response": "openai", "price": "p", "reserve": 1`: `"r";q=9;qu="cents";w=60`,
	} {
		v := newProxy(t).start(`{"prices": {"p": {"by": {"header": "x-model"}, "unit": "cents", "of": {"*": {"input": 1}}}}, "rules": [{"name": "r"` + fields +
			`, "overrides": {"by": {"header": "x-user"}, "values": {"ann": [{"limit": 7, "window": "1m"}]}}, "limits": [{"limit": 9, "window": "1m"}]}]}`)
		v.send("content-length", "1")
		must.Equal(t, v.response["ratelimit-policy"], want, "%s", fields)
		v.send("content-length", "1", "x-user", "ann")
		must.Equal(t, v.response["ratelimit-policy"], strings.Replace(want, "9", "7", 1), "%s, for ann", fields)
	}
}

// The default body names the limits without room of the rule that answers, as header fields do. Retry-After
// is not before their t.
func TestProblemNamesLimits(t *testing.T) {
	const (
		problem = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":429%s}`
		named   = `,"violated-policies":[%s]`
		limits  = `"limits": [{"limit": 2, "window": "1s", "algorithm": "fixed_window"}, {"limit": 3, "window": "1h", "algorithm": "fixed_window"}]`
	)
	v := newProxy(t).start(`{"rules": [{"name": "a", "match": {"path": {"prefix": "/a"}}, ` + limits + `}, {"name": "b", "block": "10s", "match": {"path": {"prefix": "/b"}}, ` + limits + `},
		{"name": "c", "match": {"path": {"prefix": "/c"}}, "cost": {"header": "x-cost"}, ` + limits + `},
		{"name": "d", "match": {"path": {"prefix": "/d"}}, "headers": ["retry-after"], ` + limits + `}]}`)
	for _, test := range []struct {
		send  string
		after int64
		body  string
	}{
		{"/a", 0, ""}, {"/a", 0, ""}, {"/a", 0, fmt.Sprintf(named, `"a"`)},
		{"/a", second, ""}, {"/a", 0, fmt.Sprintf(named, `"a.2"`)}, {"/a", second, fmt.Sprintf(named, `"a.2"`)},
		{"/b", 0, ""}, {"/b", 0, ""}, {"/b", 0, fmt.Sprintf(named, `"b"`)}, {"/b", 2 * second, "blocked"},
		{"/c 4", 0, fmt.Sprintf(named, `"c","c.2"`)}, {"/c 3", 0, fmt.Sprintf(named, `"c"`)}, {"/c 2", 0, ""}, {"/c 2", 0, fmt.Sprintf(named, `"c","c.2"`)},
		{"/d", 0, ""}, {"/d", 0, ""}, {"/d", 0, "hidden"},
	} {
		v.now += test.after
		path, cost, _ := strings.Cut(test.send, " ")
		passed := v.send(":path", path, "x-cost", cost)
		want := fmt.Sprintf(problem, test.body)
		if test.body == "blocked" || test.body == "hidden" {
			want = fmt.Sprintf(problem, "")
		}
		if passed != (test.body == "") || !passed && v.reply.body != want {
			t.Errorf("%s: passed %v: got %+v, want %s", test.send, passed, v.reply, want)
		}
	}
}
