package host

import "slices"

// A queue is a shared queue. Only the context that registered it last is told that something has
// come.
type queue struct {
	values  [][]byte
	vm      *VM
	context uint32
}

func (p *Process) registerQueue(vm *VM, context uint32, name string) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spaces[vm.config.ID]
	token, ok := s.queues[name]
	if !ok {
		p.queues = append(p.queues, &queue{})
		token = uint32(len(p.queues))
		s.queues[name] = token
	}
	p.queues[token-1].vm, p.queues[token-1].context = vm, context
	return token
}

func (p *Process) resolveQueue(vmID, name string) (token uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.spaces[vmID]; s != nil {
		token, ok = s.queues[name]
	}
	return token, ok
}

// queue gives the queue of a token, or nil; the lock is held.
func (p *Process) queue(token uint32) *queue {
	if token == 0 || int64(token) > int64(len(p.queues)) {
		return nil
	}
	return p.queues[token-1]
}

func (p *Process) enqueue(token uint32, value []byte) Status {
	p.mu.Lock()
	q := p.queue(token)
	if q == nil {
		p.mu.Unlock()
		return StatusNotFound
	}
	q.values = append(q.values, slices.Clone(value))
	vm, context := q.vm, q.context
	p.mu.Unlock()
	if vm.config.OnQueueReady != nil {
		vm.config.OnQueueReady(context, token)
	}
	return StatusOK
}

func (p *Process) dequeue(token uint32) ([]byte, Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queue(token)
	if q == nil {
		return nil, StatusNotFound
	}
	if len(q.values) == 0 {
		return nil, StatusEmpty
	}
	value := q.values[0]
	q.values = q.values[1:]
	return value, StatusOK
}
