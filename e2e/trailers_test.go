package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/must"
)

// endingRules reserve a number from the request or its body, and charge the number in the response.
const endingRules = `{"headers": ["x-ratelimit"], "rules": [
	{"name": "r", "match": {"path": {"exact": "/"}}, "key": [{"header": "x-key"}], "limits": [{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}],
		"reserve": {"header": "x-reserve", "least": 0}, "cost_on_response": {"response_json": "tokens"}},
	{"name": "b", "match": {"path": {"exact": "/body"}}, "key": [{"header": "x-key"}], "limits": [{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}],
		"reserve": {"request_json": "max_tokens", "default": 50}, "cost_on_response": {"response_json": "tokens"}}]}`

// endings has an upstream's answers, by their names in x-answer.
var endings = map[string]func(w http.ResponseWriter, r *http.Request){
	"":     func(http.ResponseWriter, *http.Request) {},
	"body": sevenTokens,
	"trailers": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("trailer", "x-sum")
		sevenTokens(w, r)
		w.Header().Set("x-sum", "9")
	},
	"events and trailers": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
		w.Header().Set("trailer", "x-sum")
		for range 3 {
			fmt.Fprint(w, "data: {\"tokens\":7}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("x-sum", "9")
	},
	"trailers alone": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("trailer", "x-sum")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("x-sum", "9")
	},
	"failed, with trailers": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("trailer", "x-sum")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("x-sum", "9")
	},
	"no content": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"early hints": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		sevenTokens(w, r)
	},
	"reset": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
		fmt.Fprint(w, "data: {\"tokens\":300}\n\ndata: {")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	"reset at once": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
}

func sevenTokens(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("content-type", "application/json")
	fmt.Fprint(w, `{"tokens":7}`)
}

// Whatever the end of a response, the request costs the number in it. Each request reserves 100 of
// 1000. A plugin sees trailers of HTTP/1.1 like those of HTTP/2.
func TestEndings(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		proxy := d.node(t, nodeConfig{
			configuration: endingRules, workers: 1, stopsHeadersOnly: true, http2Upstream: true,
			upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				endings[r.Header.Get("x-answer")](w, r)
			}),
		})
		for _, c := range []struct{ method, answer, want string }{
			{"GET", "body", "993"}, {"GET", "trailers", "993"}, {"GET", "events and trailers", "993"}, {"GET", "trailers alone", "900"},
			{"GET", "failed, with trailers", "1000"}, {"GET", "no content", "900"}, {"HEAD", "body", "900"}, {"GET", "early hints", "993"},
			{"GET", "reset", "700"}, {"GET", "reset at once", "900"},
		} {
			key := c.method + " " + c.answer
			r, err := send(t, http2Client(t), proxy.url(), ":method", c.method, "x-key", key, "x-answer", c.answer, "x-reserve", "100")
			if strings.HasPrefix(c.answer, "reset") {
				proxy.idle(t)
			} else if err != nil {
				t.Errorf("%s: %v", key, err)
			}
			must.Equal(t, strings.Contains(c.answer, "trailers"), r.trailer.Get("x-sum") == "9", "%s: trailers %v", key, r.trailer)
			look := ask(t, client(t), proxy.url(), "x-key", key, "x-reserve", "0")
			must.Equal(t, look.header.Get("x-ratelimit-remaining"), c.want, "%s: are left", key)
		}
		for body, want := range map[string]string{`{"max_tokens":300}`: "700", `{"x":1}`: "950", ``: "950"} {
			request := request(t, proxy.url(), io.MultiReader(strings.NewReader(body)), ":path", "/body", "x-key", body)
			request.Trailer = http.Header{"X-Sum": {"7"}}
			must.Equal(t, must.Get(do(http2Client(t), request))(t).header.Get("x-ratelimit-remaining"), want, "%q and trailers", body)
		}
	})
}
