package server

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"weir/internal/backend"
	"weir/internal/share"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/trust"
	"weir/internal/wire"
)

// metrics are the handler's metrics. Only labels of namespaces and rules have values from requests,
// and their number is bounded.
type metrics struct {
	requests, used, usedReturned *prometheus.CounterVec

	duration prometheus.Histogram

	items, applied, returned, dropped, duplicates, repaired, missing, usedFolded prometheus.Counter

	usedRules *usedRules
}

func newMetrics(r prometheus.Registerer) *metrics {
	registered := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return registered.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		requests: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_requests_total", Help: "Requests answered, by endpoint and status code.",
		}, []string{"endpoint", "code"}),
		duration: registered.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_push_duration_seconds", Help: "Time that the store took for a push, whether it failed or not.",
			Buckets: prometheus.ExponentialBuckets(1e-5, 4, 10),
		}),
		items:      counter("weir_push_items_total", "Items of the pushes that the store took, duplicates included."),
		applied:    counter("weir_hits_applied_total", "Hits added to totals."),
		returned:   counter("weir_hits_returned_total", "Hits given back, taken from totals."),
		dropped:    counter("weir_hits_dropped_total", "Hits, pushed or given back, for windows that no longer count or lie too far ahead, and hits given back that nobody has."),
		duplicates: counter("weir_push_duplicates_total", "Pushes not applied because they had been before."),
		repaired:   counter("weir_store_repaired_total", "Records that the store could not read and began anew."),
		missing:    counter("weir_push_missing_total", "Items and takes that answers to pushes lacked, as the store could not reach their counters."),
		used: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_used_hits_total", Help: "Hits that nodes have told of as used, by namespace and rule; beyond 512 of these both are empty.",
		}, []string{"weir_namespace", "weir_rule"}),
		usedReturned: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_used_returned_hits_total", Help: "Hits of weir_used_hits_total that requests have not cost in the end.",
		}, []string{"weir_namespace", "weir_rule"}),
		usedFolded: counter("weir_used_folded_total", "Rows of what keys have used that were counted together with others, as a day had too many."),
		usedRules:  &usedRules{known: map[usedRule]bool{}, room: share.Room[string]{Most: maxUsedRules}},
	}
}

// naming are the labels whose values say whom a backend serves.
var naming = []string{"weir_namespace", "weir_rule", "domain", "key1", "key2"}

// metricsOf answers with the metrics of a registry. Those that name namespaces, rules or descriptors
// are for clients that may read all namespaces under /v1: they tell of tenants, and what each spends.
func (h *handler) metricsOf(registry *prometheus.Registry, tokens *trust.Tokens, certificates bool) http.Handler {
	all := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	nameless := promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := registry.Gather()
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
			return slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool {
				return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return slices.Contains(naming, l.GetName()) })
			})
		}), err
	}), promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, known := clientOf(r, tokens)
		foreign, _ := h.guard(r)
		if known && client.May(trust.GetNames, "") == trust.Allowed && (!certificates || trust.CertificateOf(r.TLS) != nil) && foreign == 0 {
			all.ServeHTTP(w, r)
		} else {
			nameless.ServeHTTP(w, r)
		}
	})
}

func (m *metrics) request(endpoint string, code int) {
	m.requests.WithLabelValues(endpoint, strconv.Itoa(code)).Inc()
}

func (m *metrics) push(out *backend.Reply) {
	m.items.Add(float64(out.Items))
	m.applied.Add(float64(out.Applied))
	m.returned.Add(float64(out.Returned))
	m.dropped.Add(float64(out.Dropped))
	m.repaired.Add(float64(out.Repaired))
	for _, missing := range out.Answer.Missing {
		if missing != wire.Answered {
			m.missing.Inc()
		}
	}
	if out.Duplicate {
		m.duplicates.Inc()
	}
	if out.Used != nil {
		m.account(out)
	}
}

// collector collects metrics of what it asks when they are collected.
type collector func(ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector. Which metrics there are is known once they are collected.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) { c(ch) }

func gauge(name, help string, now float64) prometheus.Metric {
	return prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, now)
}

// inMemory is a store that keeps its counters in memory, perhaps in a file too.
type inMemory interface{ Size() memory.Size }

var (
	evictedDesc = prometheus.NewDesc("weir_memory_evicted_total",
		"Records evicted for others before they expired.", []string{"record"}, nil)
	refusedDesc = prometheus.NewDesc("weir_memory_refused_total",
		"Records without room: pushes of new senders that were refused.", []string{"record"}, nil)
)

func memorySize(of inMemory) collector {
	return func(ch chan<- prometheus.Metric) {
		size := of.Size()
		ch <- gauge("weir_memory_counters", "Counters in memory, those not yet swept included.", float64(size.Counters))
		ch <- gauge("weir_memory_counter_bytes", "Memory of counters, estimated.", float64(size.CounterBytes))
		ch <- gauge("weir_memory_senders", "Senders remembered, those not yet swept included.", float64(size.Senders))
		ch <- gauge("weir_memory_grant_bytes", "Memory of grants, for pushes that come again.", float64(size.GrantBytes))
		ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(size.CountersEvicted), "counter")
		ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(size.GrantsDropped), "grants")
		ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(size.SendersEvicted), "sender")
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(size.SendersRefused), "sender")
	}
}

func fileSize(of store.OnDisk) collector {
	return func(ch chan<- prometheus.Metric) {
		size, free := of.DiskBytes()
		ch <- gauge("weir_store_file_bytes", "Size of the store's file.", float64(size))
		ch <- gauge("weir_store_file_free_bytes", "Bytes of the store's file that are free for new data.", float64(free))
	}
}
