package filter_test

import (
	"strings"
	"testing"

	"weir/internal/must"
)

// Access logs learn which rule has decided a request, how, and what it leaves; nothing unless the
// configuration asks for it, and of requests that no rule matches.
func TestAccessLog(t *testing.T) {
	const document = `{"access_log": true, "rules": [
		{"name": "slow", "on_full": "mark", "match": {"path": {"exact": "/"}}, "limits": [{"limit": 1, "window": "1h", "algorithm": "fixed_window"}]},
		{"name": "all", "match": {"headers": {"x-key": {"present": true}}}, "block": "10m", "limits": [{"limit": 9, "window": "1m", "algorithm": "fixed_window"}, {"limit": 2, "window": "1h", "algorithm": "fixed_window"}]},
		{"name": "large", "match": {"headers": {"x-cost": {"present": true}}}, "cost_on_response": {"response_header": "x"}, "reserve": {"header": "x-cost"}, "most_per_request": 5,
			"limits": [{"limit": 9, "window": "1m", "algorithm": "fixed_window"}]}]}`
	v := newProxy(t).start(document)
	logged := func() string {
		return strings.TrimSpace(v.state["weir.rule"] + " " + v.state["weir.outcome"] + " " + v.state["weir.remaining"])
	}
	for i, step := range []struct{ key, want string }{
		{"x-key", "slow allowed 0"}, {"x-key", "slow marked 0"}, {"x-key", "all rejected 0"}, {"x-cost", "large invalid"}, {"x-other", "slow marked 0"},
	} {
		v.state = nil
		v.send(step.key, "6")
		must.Equal(t, logged(), step.want, "request %d", i)
	}
	v.state = nil
	if v.receive("GET", "/none", nil); !v.stream() || len(v.state) != 0 {
		t.Errorf("a request without rules: %q", v.state)
	}
	// A class's own part and the pool are one rule, which is not marked as the pool pays.
	v = newProxy(t).start(`{"access_log": true, "rules": [` + classed(`{"limit": 10, "window": "1h", "algorithm": "fixed_window"}`, "") + `,
		{"name": "later", "limits": [{"limit": 4, "window": "1h", "algorithm": "fixed_window"}]}]}`)
	for i, step := range []struct{ class, want string }{
		{"batch", "user allowed 2"}, {"batch", "user allowed 1"}, {"batch", "user allowed 0"}, {"batch", "user rejected 0"}, {"interactive", "later allowed 0"}, {"interactive", "later rejected 0"},
	} {
		v.send("x-user", "ann", "x-class", step.class)
		must.Equal(t, logged(), step.want, "request %d, of class %s", i, step.class)
	}
	v = newProxy(t).start(strings.Replace(document, `"access_log": true, `, "", 1))
	v.send("x-key", "6")
	must.Equal(t, len(v.state), 0, "state that nobody has asked for")
}
