package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxCalloutBody bounds the body of a callout's answer, in bytes. A callout with a longer answer
// fails as if it had none.
const maxCalloutBody = 64 << 20

// longestAwaited is the longest timeout of a callout that Idle waits for. A callout with a longer
// timeout waits for news, and ends when there is some.
const longestAwaited = 10 * time.Second

// callout makes a plugin's HTTP call, and posts the answer to the worker that asked for it.
func (p *Proxy) callout(w *worker, c Callout) {
	under := &p.inFlight
	if c.Timeout > longestAwaited {
		under = &p.polls
	}
	if !under.enter() {
		return
	}
	go func() {
		defer under.leave()
		response := p.fetch(c)
		if p.ctx.Err() != nil {
			return // the proxy closes
		}
		w.post(func() {
			// A failed VM never hears the answer, and a root context may be gone.
			if err := c.Root.vm.HTTPCallResponse(c.ID, response); err != nil && !errors.Is(err, ErrNoCallout) &&
				!errors.Is(err, ErrFailed) {
				w.report(err)
			}
		})
	}()
}

// fetch makes the call. As in Envoy, a call that fails before the answer's headers gets 503 or 504,
// and a call that fails later gets no answer at all.
func (p *Proxy) fetch(c Callout) CalloutResponse {
	ctx := p.ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	address, _ := p.process.Cluster(c.Cluster)
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	url := strings.TrimSuffix(address, "/") + c.Headers.Value(":path")
	r, err := http.NewRequestWithContext(ctx, c.Headers.Value(":method"), url, bytes.NewReader(c.Body))
	if err != nil {
		return localAnswer(http.StatusServiceUnavailable, err.Error())
	}
	r.Host = c.Headers.Value(":authority")
	r.Header = httpHeader(c.Headers)
	answer, err := p.config.CalloutTransport.RoundTrip(r)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return localAnswer(http.StatusGatewayTimeout, "upstream request timeout")
		}
		return localAnswer(http.StatusServiceUnavailable,
			"upstream connect error or disconnect/reset before headers. reset reason: connection failure")
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxCalloutBody+1))
	if err = errors.Join(err, answer.Body.Close()); err != nil || len(body) > maxCalloutBody {
		return CalloutResponse{}
	}
	return CalloutResponse{Headers: responseHeaders(answer.StatusCode, answer.Header), Body: body}
}

// localAnswer is an answer to a callout that Envoy makes itself.
func localAnswer(status int, text string) CalloutResponse {
	return CalloutResponse{
		Headers: NewHeaders(":status", strconv.Itoa(status), "content-length", strconv.Itoa(len(text)),
			"content-type", "text/plain", "date", time.Now().UTC().Format(http.TimeFormat)),
		Body: []byte(text),
	}
}

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
