package filter

import (
	"weir/config"
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/internal/wire"
)

// backend carries a node's pushes to the counter backend in the proxy's callouts. It is the node's
// host.
type backend struct {
	context uint32 // the plugin context that makes the callouts
	config  *config.Backend
	node    *node.Node
	metrics *metrics
	headers proxywasm.Pairs
}

var _ node.Host = (*backend)(nil)

// Now implements node.Host.
func (b *backend) Now() int64 { return proxywasm.Now() }

// TickEvery implements node.Host.
func (b *backend) TickEvery(millis uint32) { proxywasm.SetTickPeriod(millis) }

// Send implements node.Host.
func (b *backend) Send(push []byte, ticket node.Ticket) (sent bool) {
	b.headers.Reset()
	b.headers.Add(":method", "POST")
	b.headers.Add(":path", wire.PushPath)
	b.headers.Add(":authority", b.config.Authority)
	b.headers.Add("content-type", wire.ContentType)
	if b.config.Token != "" {
		b.headers.Add("authorization", "Bearer "+b.config.Token)
	}
	return proxywasm.Dispatch(&proxywasm.Callout{
		Plugin:        b.context,
		Cluster:       b.config.Cluster,
		Headers:       &b.headers,
		Body:          push,
		TimeoutMillis: uint32(b.config.Timeout.Milliseconds()),
		Done: func(ok bool) {
			outcome, answer := node.PushLost, []byte(nil)
			if ok {
				outcome, answer = received()
			}
			b.node.Answered(ticket, outcome, answer)
			b.metrics.bound(b.node)
		},
	})
}

// received is what the answer that is being delivered says.
func received() (outcome node.Outcome, answer []byte) {
	status, found := proxywasm.CalloutHeader(":status")
	if !found || len(status) != 3 {
		return node.PushLost, nil
	}
	if status[0] != '2' {
		if (string(status) == "400" || string(status) == "413") && refusedByBackend() {
			return node.PushRefused, nil
		}
		return node.PushLost, nil
	}
	if answer, found = proxywasm.CalloutBody(wire.MaxAnswer); !found {
		return node.PushLost, nil
	}
	return node.PushAnswered, answer
}

// refusedByBackend reports whether a refusal is the backend's own, for what the push says. Somebody
// on the way may refuse a push for how it was sent.
func refusedByBackend() bool {
	contentType, _ := proxywasm.CalloutHeader("content-type")
	return string(contentType) == "application/problem+json"
}
