package filter_test

import (
	"testing"

	"weir/internal/must"
	"weir/internal/proxywasm"
)

// A stream is over with its request's headers unless something is left to do: to read a body, to give
// back a place, or to charge a response. Then it goes on as in the wasm form.
func TestFinish(t *testing.T) {
	const limit = `"limits": [{"limit": 10, "window": "1h"}]`
	for name, c := range map[string]struct {
		rule          string
		over, headers bool
	}{
		"a limit":                         {limit, true, true},
		"a rule for other requests":       {`"match": {"path": {"prefix": "/other"}}, ` + limit, true, false},
		"a shadow rule":                   {`"mode": "shadow", ` + limit, true, false},
		"a refusal":                       {`"cost": 11, ` + limit, true, false},
		"a request in flight":             {`"limits": [{"limit": 1, "algorithm": "in_flight"}]`, false, false},
		"a shadow of requests in flight":  {`"mode": "shadow", "limits": [{"limit": 1, "algorithm": "in_flight"}]`, false, false},
		"a response that decides":         {`"charge_when": {"status": ["4xx"]}, ` + limit, false, false},
		"a response that tells its cost":  {`"cost_on_response": {"response_header": "x-cost"}, ` + limit, false, false},
		"a response that has a cost":      {`"cost_on_response": {"header": "x-cost"}, ` + limit, false, false},
		"a body that tells what it costs": {`"reserve": {"request_json": "n", "default": 1, "least": 1, "most": 5}, "cost_on_response": "openai", ` + limit, false, false},
	} {
		v := newProxy(t).start(`{"rules": [{"name": "r", ` + c.rule + `}]}`)
		v.request = map[string][]byte{":method": []byte("POST"), ":path": []byte("/"), ":authority": []byte("shop.example"), "x-cost": []byte("1")}
		v.response, v.context = map[string]string{}, 1
		restore := proxywasm.Use(v)
		s, _ := v.plugin.OnRequest(1, false)
		must.Equal(t, s == nil, c.over, "%s: the stream is over", name)
		must.Equal(t, len(v.response) > 0, c.headers, "%s: the response has headers %v", name, v.response)
		restore()
	}
}
