package host

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
func (d SharedData) Len() int {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	if s := d.process.spaces[d.vmID]; s != nil {
		return s.data.Len()
	}
	return 0
}

// Bytes returns the sum of the lengths of all keys and values.
func (d SharedData) Bytes() int {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	if s := d.process.spaces[d.vmID]; s != nil {
		return s.data.Bytes()
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
