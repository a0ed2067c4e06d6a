package host

import (
	"sync"
	"sync/atomic"
)

// MetricKind is the kind of a metric.
type MetricKind uint32

// The kinds of the ABI.
const (
	Counter MetricKind = iota
	Gauge
	Histogram
	metricKinds
)

// Metric is the state of a metric at one moment. Names lack Envoy's prefix "wasmcustom.".
type Metric struct {
	Kind MetricKind
	// Value is the value of a counter or gauge, or the sum of the values that a histogram recorded.
	Value int64
	// Count is the number of values that a histogram recorded.
	Count uint64
}

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
	count atomic.Uint64
}

// Snapshot returns all metrics, by name.
func (m *Metrics) Snapshot() map[string]Metric {
	all := map[string]Metric{}
	if list := m.list.Load(); list != nil {
		for _, x := range *list {
			all[x.name] = Metric{Kind: x.kind, Value: x.value.Load(), Count: x.count.Load()}
		}
	}
	return all
}

// Value returns the value of a metric, or 0 if no VM has defined it.
func (m *Metrics) Value(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, ok := m.byName[name]
	if !ok {
		return 0
	}
	return m.find(id).value.Load()
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
	case x.kind == Histogram || x.kind == Counter && offset <= 0:
		return StatusBadArgument
	}
	x.value.Add(offset)
	return StatusOK
}

// record adds to a counter, sets a gauge, and adds a value to a histogram.
func (m *Metrics) record(id uint32, value uint64) Status {
	x := m.find(id)
	if x == nil {
		return StatusNotFound
	}
	switch x.kind {
	case Gauge:
		x.value.Store(int64(value))
	default:
		x.value.Add(int64(value))
		x.count.Add(1)
	}
	return StatusOK
}

func (m *Metrics) get(id uint32) (uint64, Status) {
	x := m.find(id)
	switch {
	case x == nil:
		return 0, StatusNotFound
	case x.kind == Histogram:
		return 0, StatusBadArgument
	}
	return uint64(x.value.Load()), StatusOK
}
