package filter_test

import (
	"fmt"
	"testing"

	"weir/internal/must"
)

const loginsRule = `{"headers": ["x-ratelimit"], "rules": [{"name": "logins", "key": [{"header": "x-key"}], "charge_when": {"status": ["401", "5xx"]}%s,
	"limits": [{"limit": 3, "window": "1h", "algorithm": "fixed_window"}]}]}`

// The hits of a request stay taken if its response has one of the statuses, or if nobody has heard of one, as
// its client has left. Others go back.
func TestChargeWhen(t *testing.T) {
	for _, c := range []struct {
		more, status string
		want         string // that the next request leaves of three
	}{
		{"", "401", "1"}, {"", "503", "1"}, {"", "200", "2"}, {"", "403", "2"}, {"", "400", "2"}, {"", "", "1"},
		// The response's cost is added only if it is charged.
		{`, "cost_on_response": {"response_header": "x-cost"}`, "401", "0"}, {`, "cost_on_response": {"response_header": "x-cost"}`, "200", "2"},
		{`, "cost_on_response": {"header": "x-said"}`, "401", "0"}, {`, "cost_on_response": {"header": "x-said"}`, "204", "2"},
		{`, "cost": 2`, "401", "none"}, {`, "cost": 2`, "301", "1"},
		{`, "cost_on_response": "openai", "reserve": 2, "on_failure": "keep"`, "500", "none"},
		{`, "cost_on_response": "openai", "reserve": 2, "on_failure": "keep"`, "200", "1"},
	} {
		v := newProxy(t).start(fmt.Sprintf(loginsRule, c.more))
		s := v.open("x-key", "ann", "x-said", "1")
		if c.status != "" {
			v.respond(s, true, ":status", c.status, "x-cost", "1")
		}
		v.reset(s)
		got := "none"
		if next := v.open("x-key", "ann"); next != nil {
			v.finish(next)
			got = v.response["x-ratelimit-remaining"]
		}
		must.Equal(t, got, c.want, "%s, status %q: are left", c.more, c.status)
	}
}

// A shadow rule charges as the rule would that it may become.
func TestChargeWhenInShadow(t *testing.T) {
	v := newProxy(t).start(fmt.Sprintf(loginsRule, `, "mode": "shadow"`))
	for _, status := range []string{"200", "401", "200", "401", "401", "200"} {
		s := v.open("x-key", "ann")
		v.finish(s, ":status", status)
	}
	v.tick()
	v.wantShadow("logins", 5, 1)
}
