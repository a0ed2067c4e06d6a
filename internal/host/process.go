package host

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"weir/sharedata"
)

// Clock returns Unix time in nanoseconds. It serves as the guest's wall clock and its monotonic
// clock. All VMs of a process share it, so it must be safe for concurrent use.
type Clock func() int64

// ProcessConfig configures [NewProcess].
type ProcessConfig struct {
	// NodeID is the property node.id.
	NodeID string
	// Clock is the real clock if it is nil.
	Clock Clock
	// Clusters are the upstream clusters that plugins may call: a name, and a base URL or
	// host:port.
	Clusters map[string]string
}

// Process holds everything that the VMs of one Envoy process share. It is safe for concurrent use.
type Process struct {
	nodeID   string
	clock    Clock
	clusters map[string]string
	metrics  Metrics
	hook     atomic.Pointer[SharedDataHook]

	mu      sync.Mutex
	spaces  map[string]*space
	numbers sharedata.Numbers // of the writes to all spaces
}

// A space holds everything that the VMs with one vm_id share. It ends with the last of them.
type space struct {
	users int
	data  sharedata.Map
}

// NewProcess returns a process without VMs.
func NewProcess(config ProcessConfig) *Process {
	p := &Process{
		nodeID:   config.NodeID,
		clock:    config.Clock,
		clusters: maps.Clone(config.Clusters),
		spaces:   map[string]*space{},
	}
	if p.clock == nil {
		p.clock = func() int64 { return time.Now().UnixMicro() * 1000 } // Envoy's clock has microseconds
	}
	return p
}

// Cluster returns the address of a cluster.
func (p *Process) Cluster(name string) (address string, ok bool) {
	address, ok = p.clusters[name]
	return address, ok
}

// Metrics returns the metrics of all VMs.
func (p *Process) Metrics() *Metrics { return &p.metrics }

// acquire keeps the space of a vm_id alive until release is called. Further calls of release do
// nothing.
func (p *Process) acquire(vmID string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spaces[vmID]
	if s == nil {
		s = &space{data: sharedata.Map{Numbers: &p.numbers}}
		p.spaces[vmID] = s
	}
	s.users++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.users--; s.users > 0 {
			return
		}
		delete(p.spaces, vmID)
	})
}
