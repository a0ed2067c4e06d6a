package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// TestDecompressor puts Envoy's decompressor on either side of the plugin. Requests pass filters in
// the order of http_filters, and responses in the opposite order.
func TestDecompressor(t *testing.T) {
	compressed := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := io.WriteString(w, text)
		must.OK(t, errors.Join(err, w.Close()))
		return b.Bytes()
	}
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Tokens int `json:"max_tokens"`
		}
		must.Reportf(t, json.NewDecoder(r.Body).Decode(&asked), "the upstream gets")
		w.Header().Set("content-type", "application/json")
		w.Header().Set("content-encoding", "gzip")
		_, _ = w.Write(compressed(`{"tokens": 2000}`))
	})
	decompressor := func(name string) envoytest.Object {
		return envoytest.Object{"name": name, "typed_config": envoytest.Typed("envoy.extensions.filters.http.decompressor.v3.Decompressor", envoytest.Object{
			"decompressor_library": envoytest.Object{
				"name": "gzip", "typed_config": envoytest.Typed("envoy.extensions.compression.gzip.decompressor.v3.Gzip", nil),
			},
		})}
	}
	onEnvoyAlone(t, 1, all, func(t *testing.T, d envoys) {
		n := d.prepare(t, nodeConfig{configuration: asked, workers: 1, upstream: upstream, stopsHeadersOnly: true})
		plugin := must.Get(n.plugin())(t)
		before, after := decompressor("before"), decompressor("after")
		for key, order := range map[string]struct {
			filters []envoytest.Object
			// The request asks for 1,000 tokens and costs 2,000. A request that can't be read
			// reserves 50, and an answer that can't be read costs the reserved tokens.
			reserved, charged int
		}{
			"before": {[]envoytest.Object{before, plugin, envoytest.Router()}, 1000, 1000},
			"after":  {[]envoytest.Object{plugin, after, envoytest.Router()}, 50, 2000},
			"both":   {[]envoytest.Object{before, plugin, after, envoytest.Router()}, 1000, 2000},
		} {
			n.hcm = envoytest.Object{"http_filters": order.filters}
			n.listen(t)
			for used := range 2 {
				body := bytes.NewReader(compressed(`{"max_tokens": 1000}`))
				r := must.Get(do(client(t), request(t, n.url(), body, "content-encoding", "gzip", "x-key", key)))(t)
				want := strconv.Itoa(10_000 - used*order.charged - order.reserved)
				must.Equal(t, r.status, http.StatusOK, "decompressor %s, request %d: status", key, used)
				must.Equal(t, r.header.Get("x-ratelimit-remaining"), want, "decompressor %s, request %d: are left", key, used)
				n.idle(t)
			}
		}
	})
}
