package host

// SharedData is the map that all VMs with one vm_id share. It is empty while there is no such VM.
type SharedData struct {
	process *Process
	vmID    string
}

// A SharedDataAccess is a host call that is about to read or write shared data.
type SharedDataAccess struct {
	VM  *VM
	Set bool
	Key string
}

// SharedDataHook runs before each access of a plugin to shared data, on that VM's goroutine and without a lock: it
// may run other VMs, but not the one that is calling.
type SharedDataHook func(SharedDataAccess)

type sharedValue struct {
	value []byte
	cas   uint32
}

// SharedData gives the shared data of a vm_id.
func (p *Process) SharedData(vmID string) SharedData { return SharedData{p, vmID} }

// SetSharedDataHook sets the hook of this process; nil removes it.
func (p *Process) SetSharedDataHook(hook SharedDataHook) {
	if hook == nil {
		p.hook.Store(nil)
		return
	}
	p.hook.Store(&hook)
}

// Get copies a value out, with the number of the write that made it; NotFound if there is none.
func (d SharedData) Get(key string) (value []byte, cas uint32, status Status) {
	return sharedGet(d, nil, key)
}

// Set writes a value. A cas of 0 always writes; another one must be the number of an existing key's last write, else
// the answer is CasMismatch; a missing key is created whatever the cas. BadArgument if no VM has this vm_id.
func (d SharedData) Set(key string, value []byte, cas uint32) Status {
	return sharedSet(d, key, value, cas)
}

// Len is the number of keys.
func (d SharedData) Len() int {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	if s := d.process.spaces[d.vmID]; s != nil {
		return len(s.data)
	}
	return 0
}

// Bytes is the sum of the lengths of all keys and values.
func (d SharedData) Bytes() int {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	if s := d.process.spaces[d.vmID]; s != nil {
		return s.bytes
	}
	return 0
}

// sharedGet appends the value to dst: the copy is made under the lock, into memory that the caller reuses.
func sharedGet[K ~string | ~[]byte](d SharedData, dst []byte, key K) ([]byte, uint32, Status) {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	s := d.process.spaces[d.vmID]
	if s == nil {
		return dst, 0, StatusNotFound
	}
	v := s.data[string(key)]
	if v == nil {
		return dst, 0, StatusNotFound
	}
	return append(dst, v.value...), v.cas, StatusOK
}

func sharedSet[K ~string | ~[]byte](d SharedData, key K, value []byte, cas uint32) Status {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	s := d.process.spaces[d.vmID]
	if s == nil {
		return StatusBadArgument
	}
	v := s.data[string(key)]
	switch {
	case v == nil:
		v = &sharedValue{}
		s.data[string(key)] = v
		s.bytes += len(key)
	case cas != 0 && cas != v.cas:
		return StatusCasMismatch
	}
	s.bytes += len(value) - len(v.value)
	v.value = append(v.value[:0], value...)
	v.cas = d.process.takeCas()
	return StatusOK
}

// takeCas takes the next number of the process. 0 means "whatever is there", so it is never given out.
func (p *Process) takeCas() uint32 {
	cas := p.nextCas
	if p.nextCas++; p.nextCas == 0 {
		p.nextCas = 1
	}
	return cas
}
