package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/store/memory"
)

// inMemory is a store that keeps its counters in memory, perhaps in a file too.
type inMemory interface{ Size() memory.Size }

// memorySize collects the size of a store in memory.
type memorySize struct{ store inMemory }

var (
	countersDesc = prometheus.NewDesc("weir_memory_counters", "Counters in memory, those not yet swept included.", nil, nil)
	bytesDesc    = prometheus.NewDesc("weir_memory_counter_bytes", "Memory of counters, estimated.", nil, nil)
	sendersDesc  = prometheus.NewDesc("weir_memory_senders", "Senders remembered, those not yet swept included.", nil, nil)
	grantsDesc   = prometheus.NewDesc("weir_memory_grant_bytes", "Memory of grants, for pushes that come again.", nil, nil)
	evictedDesc  = prometheus.NewDesc("weir_memory_evicted_total",
		"Records evicted for others before they expired.", []string{"record"}, nil)
	refusedDesc = prometheus.NewDesc("weir_memory_refused_total",
		"Records without room: pushes of new senders that were refused.", []string{"record"}, nil)
)

// Describe implements prometheus.Collector.
func (m memorySize) Describe(ch chan<- *prometheus.Desc) {
	ch <- countersDesc
	ch <- bytesDesc
	ch <- sendersDesc
	ch <- grantsDesc
	ch <- evictedDesc
	ch <- refusedDesc
}

// Collect implements prometheus.Collector.
func (m memorySize) Collect(ch chan<- prometheus.Metric) {
	size := m.store.Size()
	ch <- prometheus.MustNewConstMetric(countersDesc, prometheus.GaugeValue, float64(size.Counters))
	ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, float64(size.CounterBytes))
	ch <- prometheus.MustNewConstMetric(sendersDesc, prometheus.GaugeValue, float64(size.Senders))
	ch <- prometheus.MustNewConstMetric(grantsDesc, prometheus.GaugeValue, float64(size.GrantBytes))
	ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(size.CountersEvicted), "counter")
	ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(size.GrantsDropped), "grants")
	ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(size.SendersEvicted), "sender")
	ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(size.SendersRefused), "sender")
}
