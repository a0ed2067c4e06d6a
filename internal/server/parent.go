package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/listen"
)

// RegionHeader marks the requests of a region to its parent.
const RegionHeader = "X-Weir-Region"

// tooDeep is the refusal of a region whose parent is a region itself.
const tooDeep = "region: this backend has a parent itself, and there are only two levels: want that parent's URL"

// longestRelay is the longest time for the parent's whole answer.
const longestRelay = watchLife + listen.WriteTimeout

// ToParent relays requests to a parent. Unless token is empty, it replaces the client's.
func ToParent(parent *url.URL, token string, transport http.RoundTripper, log *slog.Logger) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(parent)
			for _, own := range []string{"Authorization", "Cookie", "Origin"} {
				r.Out.Header.Del(own)
			}
			r.Out.Header.Set(RegionHeader, "1")
			if token != "" {
				r.Out.Header.Set("Authorization", "Bearer "+token)
			}
		},
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			log.Debug("not relayed to the parent", "path", r.URL.Path, "error", err)
			if err := problem(w, http.StatusBadGateway, "the parent does not answer"); err != nil {
				log.Debug("answer not sent", "error", err)
			}
		},
	}
}

// relayChange is [handler.relay] of a change. The parent's record has the region's token, so the log
// here says who it was.
func (h *handler) relayChange(w http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	by, err := h.askedBy(r)
	if err != nil {
		return nil, err
	}
	h.log.Info("somebody asks the parent for a change", "namespace", namespace, "call", r.Pattern,
		"name", by.Name, "by", by.Known, "address", by.Address, "reason", by.Reason)
	return h.relay(w, r, namespace)
}

// relay relays a request to the parent, which has the counters of all regions.
func (h *handler) relay(w http.ResponseWriter, r *http.Request, _ string) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), longestRelay)
	defer cancel()
	go func() {
		select {
		case <-h.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longestRelay)); err != nil {
		h.log.Debug("the write deadline stays", "error", err)
	}
	h.parent.ServeHTTP(w, r.WithContext(ctx))
	return nil, nil
}

// regional is the store of a backend with a parent.
type regional interface {
	Away() bool
	Overshoot() map[string]uint64
}

var overshootDesc = prometheus.NewDesc("weir_region_overshoot_bound",
	"Hits of a key that can have passed above a limit of the namespace, since regions decided without their parent.", []string{"weir_namespace"}, nil)

func regionState(of regional) collector {
	return func(ch chan<- prometheus.Metric) {
		away := 0.0
		if of.Away() {
			away = 1
		}
		ch <- gauge("weir_region_parent_away", "1 while the region's parent does not answer.", away)
		for namespace, hits := range of.Overshoot() {
			ch <- prometheus.MustNewConstMetric(overshootDesc, prometheus.GaugeValue, float64(hits), namespace)
		}
	}
}
