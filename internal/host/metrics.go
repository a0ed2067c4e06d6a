package host

import (
	"sync"
	"sync/atomic"
)

// MetricKind is the kind of a metric.
type MetricKind uint32

// The kinds that Weir's plugin has.
const (
	Counter MetricKind = iota
	Gauge
	metricKinds
)

// Metrics are the metrics of a process, which are never removed. They are safe for concurrent use.
type Metrics struct {
	mu     sync.Mutex
	byName map[string]uint32
	// list is replaced, never changed, so that a host call finds its metric without a lock.
	list atomic.Pointer[[]*metric]
}

type metric struct {
	name  string
	kind  MetricKind
	value atomic.Int64
}

// Snapshot returns the values of all metrics, by their names without Envoy's prefix "wasmcustom.".
func (m *Metrics) Snapshot() map[string]int64 {
	all := map[string]int64{}
	if list := m.list.Load(); list != nil {
		for _, x := range *list {
			all[x.name] = x.value.Load()
		}
	}
	return all
}

// define returns the id of a metric, which is the same for all VMs. A name keeps its first kind.
func (m *Metrics) define(kind MetricKind, name string) (id uint32, status Status) {
	if kind >= metricKinds {
		return 0, StatusBadArgument
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.byName[name]; ok {
		if m.find(id).kind != kind {
			return 0, StatusBadArgument
		}
		return id, StatusOK
	}
	var list []*metric
	if old := m.list.Load(); old != nil {
		list = append(list, *old...)
	}
	list = append(list, &metric{name: name, kind: kind})
	id = uint32(len(list))
	if m.byName == nil {
		m.byName = map[string]uint32{}
	}
	m.byName[name] = id
	m.list.Store(&list)
	return id, StatusOK
}

func (m *Metrics) find(id uint32) *metric {
	list := m.list.Load()
	if list == nil || id == 0 || int64(id) > int64(len(*list)) {
		return nil
	}
	return (*list)[id-1]
}

// increment adds to a gauge, or to a counter, which only grows.
func (m *Metrics) increment(id uint32, offset int64) Status {
	x := m.find(id)
	switch {
	case x == nil:
		return StatusNotFound
	case x.kind == Counter && offset <= 0:
		return StatusBadArgument
	}
	x.value.Add(offset)
	return StatusOK
}

// record adds to a counter, and sets a gauge.
func (m *Metrics) record(id uint32, value uint64) Status {
	x := m.find(id)
	switch {
	case x == nil:
		return StatusNotFound
	case x.kind == Gauge:
		x.value.Store(int64(value))
	default:
		x.value.Add(int64(value))
	}
	return StatusOK
}
