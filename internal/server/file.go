package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/store"
)

// fileSize collects the size of a store's file.
type fileSize struct{ store store.OnDisk }

var (
	fileDesc = prometheus.NewDesc("weir_store_file_bytes", "Size of the store's file.", nil, nil)
	freeDesc = prometheus.NewDesc("weir_store_file_free_bytes", "Bytes of the store's file that are free for new data.", nil, nil)
)

// Describe implements prometheus.Collector.
func (f fileSize) Describe(ch chan<- *prometheus.Desc) {
	ch <- fileDesc
	ch <- freeDesc
}

// Collect implements prometheus.Collector.
func (f fileSize) Collect(ch chan<- prometheus.Metric) {
	size, free := f.store.DiskBytes()
	ch <- prometheus.MustNewConstMetric(fileDesc, prometheus.GaugeValue, float64(size))
	ch <- prometheus.MustNewConstMetric(freeDesc, prometheus.GaugeValue, float64(free))
}
