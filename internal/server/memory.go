package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/store"
	"weir/internal/store/memory"
)

// collector collects metrics of what it asks when they are collected.
type collector func(ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector. Which metrics there are is known once they are collected.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) { c(ch) }

// gauge returns a gauge that is now so high.
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

// memorySize collects the size of a store in memory.
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

// fileSize collects the size of a store's file.
func fileSize(of store.OnDisk) collector {
	return func(ch chan<- prometheus.Metric) {
		size, free := of.DiskBytes()
		ch <- gauge("weir_store_file_bytes", "Size of the store's file.", float64(size))
		ch <- gauge("weir_store_file_free_bytes", "Bytes of the store's file that are free for new data.", float64(free))
	}
}
