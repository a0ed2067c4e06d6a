package host

import (
	"errors"
	"time"
)

// Callout is an HTTP call that a plugin wants made.
type Callout struct {
	// ID names the answer.
	ID uint32
	// Root is the context that gets the answer.
	Root *Root
	// Cluster is known to the process.
	Cluster string
	// Headers have :method, :path and :authority.
	Headers  *Headers
	Body     []byte
	Trailers *Headers
	// Timeout is the limit of the whole call; 0 is none.
	Timeout time.Duration
}

// CalloutResponse is the answer to a callout. The zero value is a callout that failed without an
// answer, which the plugin sees as zero headers, an empty body and zero trailers.
type CalloutResponse struct {
	Headers  *Headers
	Body     []byte
	Trailers *Headers
}

// ErrNoCallout says that a callout is not under way: it has been answered, or its root context is
// gone.
var ErrNoCallout = errors.New("no such callout")

// HTTPCallResponse delivers the answer to a callout to the root context that asked.
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
		uint64(response.Headers.Len()), uint64(len(response.Body)), uint64(response.Trailers.Len()))
	return err
}
