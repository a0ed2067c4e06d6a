package host

import (
	"errors"
	"time"
)

// Callout is an HTTP call that a plugin asks for.
type Callout struct {
	// ID identifies the callout when its answer is delivered.
	ID uint32
	// Root is the context that gets the answer.
	Root *Root
	// Cluster is a cluster that the process knows.
	Cluster string
	// Headers have at least :method, :path and :authority.
	Headers *Headers
	Body    []byte
	// Timeout bounds the whole call; 0 is no bound.
	Timeout time.Duration
}

// CalloutResponse is the answer to a callout. The zero value stands for a callout that failed
// without an answer: the plugin sees zero headers and an empty body.
type CalloutResponse struct {
	Headers *Headers
	Body    []byte
}

// ErrNoCallout says that a callout is no longer under way: it has been answered, or its root
// context is gone.
var ErrNoCallout = errors.New("no such callout")

// HTTPCallResponse delivers the answer to a callout to the root context that made it.
func (vm *VM) HTTPCallResponse(id uint32, response CalloutResponse) error {
	if vm.failure != nil {
		return vm.failure
	}
	root, ok := vm.callouts[id]
	if !ok {
		return ErrNoCallout
	}
	delete(vm.callouts, id)
	vm.answer = &response
	defer func() { vm.answer = nil }()
	_, err := vm.call(onHTTPCallResponse, scope{root: root}, uint64(root.id), uint64(id),
		uint64(response.Headers.Len()), uint64(len(response.Body)), 0)
	return err
}
