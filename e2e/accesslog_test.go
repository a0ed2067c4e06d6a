package e2e

import (
	"strings"
	"testing"

	"weir/internal/envoytest"
)

// Envoy's access log shows which rule has decided a request, how, and what it leaves.
func TestAccessLog(t *testing.T) {
	onEnvoyAlone(t, 1, all, func(t *testing.T, d envoys) {
		n := d.prepare(t, nodeConfig{configuration: `{"access_log": true, "rules": [
			{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 2, "window": "366d"}]},
			{"name": "all", "limits": [{"limit": 100, "window": "366d"}], "match": {"path": {"prefix": "/"}, "not": {"path": {"exact": "/free"}}}}]}`})
		n.hcm = envoytest.Object{"access_log": accessLog(
			"decided %REQ(:PATH)% %RESPONSE_CODE% %FILTER_STATE(wasm.weir.rule:PLAIN)% %FILTER_STATE(wasm.weir.outcome:PLAIN)% %FILTER_STATE(wasm.weir.remaining:PLAIN)%\n")}
		n.listen(t)
		client := client(t)
		for i, want := range []string{"/0 200 user allowed 1", "/1 200 user allowed 0", "/2 429 user rejected 0"} {
			ask(t, client, n.url(), ":path", want[:2], "x-user", "ann")
			if !soon(func() bool { return strings.Contains(n.said(), "decided "+want+"\n") }) {
				t.Errorf("request %d: no line %q in\n%s", i, want, n.said())
			}
		}
	})
}
