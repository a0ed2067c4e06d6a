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
	// NodeMetadata are the texts in the property xds.node.metadata, as Envoy has it while it configures plugins.
	NodeMetadata map[string]string
	// Clock is the real clock if it is nil.
	Clock Clock
	// Clusters are the upstream clusters that plugins may call: a name, and a base URL or
	// host:port.
	Clusters map[string]string
}

// Process holds everything that the VMs of one Envoy process share. It is safe for concurrent use.
type Process struct {
	nodeID   string
	metadata map[string]string
	clock    Clock
	clusters map[string]string
	metrics  Metrics
	traffic  struct{ requests, answered, waited, waitedNanos atomic.Int64 }

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
		metadata: maps.Clone(config.NodeMetadata),
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

// Traffic counts requests by what plugins have done with them.
type Traffic struct {
	Requests int64 `json:"requests"`
	// Answered requests have got an answer of a plugin in place of the upstream's.
	Answered int64 `json:"answered"`
	// Waited requests were held back until a plugin let them go on, for WaitedNanos together.
	Waited      int64 `json:"waited"`
	WaitedNanos int64 `json:"waited_ns"`
}

// Traffic returns the requests that all proxies of the process have had.
func (p *Process) Traffic() Traffic {
	t := &p.traffic
	return Traffic{Requests: t.requests.Load(), Answered: t.answered.Load(), Waited: t.waited.Load(), WaitedNanos: t.waitedNanos.Load()}
}

// count counts a request whose request phase has ended.
func (p *Process) count(answered bool, waited time.Duration) {
	t := &p.traffic
	t.requests.Add(1)
	if answered {
		t.answered.Add(1)
	}
	if waited > 0 {
		t.waited.Add(1)
		t.waitedNanos.Add(int64(waited))
	}
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

// SharedData is the map that all VMs with one vm_id share. Without such a VM it is empty.
type SharedData struct {
	process *Process
	vmID    string
}

// SharedData returns the shared data of a vm_id.
func (p *Process) SharedData(vmID string) SharedData { return SharedData{p, vmID} }

// Get returns a copy of a value, and the number of the write that made it, or NotFound.
func (d SharedData) Get(key string) (value []byte, cas uint32, status Status) {
	return d.get(nil, []byte(key))
}

// Len returns the number of keys.
func (d SharedData) Len() int { return d.size((*sharedata.Map).Len) }

// Bytes returns the sum of the lengths of all keys and values.
func (d SharedData) Bytes() int { return d.size((*sharedata.Map).Bytes) }

func (d SharedData) size(of func(*sharedata.Map) int) int {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	if s := d.process.spaces[d.vmID]; s != nil {
		return of(&s.data)
	}
	return 0
}

// get copies the value under the lock to buffer, which the caller reuses.
func (d SharedData) get(buffer, key []byte) ([]byte, uint32, Status) {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	s := d.process.spaces[d.vmID]
	if s == nil {
		return buffer, 0, StatusNotFound
	}
	value, cas, found := s.data.Get(key, buffer)
	if !found {
		return value, 0, StatusNotFound
	}
	return value, cas, StatusOK
}

func (d SharedData) set(key, value []byte, cas uint32) Status {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	s := d.process.spaces[d.vmID]
	if s == nil {
		return StatusBadArgument
	}
	if !s.data.Set(key, value, cas) {
		return StatusCasMismatch
	}
	return StatusOK
}
