package filter_test

import (
	"testing"

	"weir/internal/must"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// A request that wants more than its rule allows any is refused with the provider's 400, and takes nothing of
// any rule, whatever room there is. A shadow rule measures it as rejected.
func TestMostPerRequest(t *testing.T) {
	const limits = `"limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": "openai"`
	v := newProxy(t).start(`{"headers": ["x-ratelimit"], "response": {"preset": "auto"}, "rules": [
		{"name": "a", "key": [{"header": "x-key"}], ` + limits + `, "reserve": {"request_json": "max_tokens", "default": 5, "most": 500}, "most_per_request": 200},
		{"name": "b", "key": [{"header": "x-key"}], "limits": [{"limit": 1, "window": "1h"}]},
		{"name": "s", "mode": "shadow", ` + limits + `, "reserve": {"header": "x-most"}, "most_per_request": 50}]}`)
	send := func(body string, headers ...string) types.Action {
		s, _ := v.ask(append(headers, "x-key", "ann")...)
		return v.upload(s, true, body)
	}
	const want = `{"error":{"message":"Request too large: more than rule a allows a request.","type":"invalid_request_error","param":null,"code":"request_too_large"}}`
	for _, body := range []string{`{"max_tokens":201}`, `{"max_tokens":99999999999999999999}`} {
		if send(body); v.reply == nil || v.reply.status != 400 || v.reply.body != want || v.reply.details != "weir_too_large:a" || v.reply.headers["retry-after"] != "" {
			t.Errorf("%s: got %+v", body, v.reply)
		}
	}
	v.reply = nil
	must.Equal(t, send(`{"max_tokens":200}`, "x-most", "51"), types.ActionContinue, "the largest request: action")
	must.Equal(t, v.reply == nil, true, "the largest request passes: %+v", v.reply)
	v.tick()
	v.wantShadow("s", 0, 1)
}

// A number that is too large to represent is above every bound.
func TestMostPerRequestOfAHeader(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "r", "limits": [{"limit": 1000, "window": "1h"}], "cost_on_response": "openai",
		"reserve": {"header": "x-most"}, "most_per_request": 50}]}`)
	for _, most := range []string{"51", "18446744073709551614", "18446744073709551615", "99999999999999999999"} {
		if v.send("x-most", most) || v.reply == nil || v.reply.status != 400 || v.reply.details != "weir_too_large:r" {
			t.Errorf("x-most: %s: got %+v", most, v.reply)
		}
	}
	must.Equal(t, v.send("x-most", "50"), true, "the largest request was refused: %+v", v.reply)
}
