package filter

import (
	"strconv"

	"weir/config"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/failure"
	"weir/internal/proxywasm"
	"weir/internal/wire"
)

// backend sends a node's pushes to the counter backend by the proxy's callouts. It is the node's
// host.
type backend struct {
	context uint32 // the plugin context that makes the callouts
	config  *config.Backend
	node    *engine.Engine
	metrics *metrics
	headers proxywasm.Pairs
	// namespace and failure are for log messages.
	namespace string
	failure   failure.Mode
	// answered is called after each answer was processed.
	answered func()
}

// backends are the backends of a VM's plugin contexts that synchronise.
type backends struct{ list []*backend }

func (l *backends) add(b *backend) { l.list = append(l.list, b) }

func (l *backends) remove(b *backend) {
	for i, other := range l.list {
		if other == b {
			l.list = append(l.list[:i], l.list[i+1:]...)
			return
		}
	}
}

// heir returns another backend that can push the hits that b has counted.
func (l *backends) heir(b *backend) *backend {
	for _, other := range l.list {
		if other != b && other.namespace == b.namespace && other.config.Cluster == b.config.Cluster {
			return other
		}
	}
	return nil
}

var _ engine.Host = (*backend)(nil)

// Now implements engine.Host.
func (b *backend) Now() int64 { return proxywasm.Now() }

// TickEvery implements engine.Host.
func (b *backend) TickEvery(millis uint32) { proxywasm.SetTickPeriod(millis) }

// traceparentSize is the size of the present version of https://www.w3.org/TR/trace-context/.
const traceparentSize = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// Send implements engine.Host.
func (b *backend) Send(push []byte, ticket engine.Ticket) (sent bool) {
	b.headers.Reset()
	b.headers.Add(":method", "POST")
	b.headers.Add(":path", wire.PushPath)
	b.headers.Add(":authority", b.config.Authority)
	b.headers.Add("content-type", wire.ContentType)
	if b.config.Token != "" {
		b.headers.Add("authorization", "Bearer "+b.config.Token)
	}
	// Envoy gives its callouts no span. That of the client is at least in the trace of the request that asks.
	if parent, ok := proxywasm.RequestHeader("traceparent"); ok && len(parent) == traceparentSize {
		b.headers.AddBytes("traceparent", parent)
	}
	return proxywasm.Dispatch(&proxywasm.Callout{
		Plugin:        b.context,
		Cluster:       b.config.Cluster,
		Headers:       &b.headers,
		Body:          push,
		TimeoutMillis: uint32(max(b.config.Timeout.Milliseconds(), ticket.Patience()/1e6)),
		Done: func(ok bool) {
			outcome, answer := link.PushLost, []byte(nil)
			if ok {
				outcome, answer = received()
			}
			b.node.Answered(ticket, outcome, answer)
			b.answered()
			b.metrics.publishBounds(b.node)
		},
	})
}

// received returns the outcome and the body of the present callout's answer.
func received() (outcome link.Outcome, answer []byte) {
	switch status := statusOf(proxywasm.CalloutHeader(":status")); {
	case status < 100:
		return link.PushLost, nil
	case status < 200 || status > 299:
		if (status == 400 || status == 413) && refusedByBackend() {
			return link.PushRefused, nil
		}
		return link.Outcome(status), nil
	}
	if answer, found := proxywasm.CalloutBody(wire.MaxAnswer + wire.MaxNear); found {
		return link.PushAnswered, answer
	}
	return link.PushLost, nil
}

// refusedByBackend reports whether the backend itself refused a push for its content. A proxy on
// the way may refuse it for other reasons.
func refusedByBackend() bool {
	contentType, _ := proxywasm.CalloutHeader("content-type")
	return string(contentType) == "application/problem+json"
}

// turned logs a change in how pushes end, and how requests are decided meanwhile.
func (b *backend) turned(why link.Outcome) {
	message := "weir: namespace " + b.namespace + ": pushes to cluster " + b.config.Cluster
	switch why {
	case link.PushAnswered:
		proxywasm.Log(proxywasm.LogWarn, message+" are answered again")
		return
	case link.PushRefused:
		proxywasm.Log(proxywasm.LogWarn, message+" are refused for good, and their hits are lost: want a backend of the plugin's version or newer")
		return
	case link.PushUnsent:
		message += " can't be sent: want a cluster with this name"
	case link.PushLost:
		message += " get no answer"
	case link.PushGarbled:
		message += " get answers that don't come from a Weir backend"
	case 401:
		message += " are refused with 401: want a token that the backend knows"
	case 403:
		message += " are refused with 403: want a certificate, or a token for this namespace"
	default:
		message += " fail with " + strconv.Itoa(int(why))
	}
	decides := "this proxy's own counters decide"
	switch b.failure {
	case failure.Allow:
		decides = "requests pass uncounted"
	case failure.Deny:
		decides = "requests are refused"
	}
	proxywasm.Log(proxywasm.LogWarn, message+"; until they are answered, "+decides+" (on_backend_failure: "+failure.Names[b.failure]+")")
}
