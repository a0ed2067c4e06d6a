// Package proxywasm is the plugin's side of the proxy-wasm ABI, and the only package that knows it.
//
// It has the same functions twice. For wasip1, the form that ships, it binds the host's functions
// directly, and allocates nothing on the path of a request. Natively it forwards to a [Host] of the
// caller. RATIONALE.md says why the binding is not that of an SDK.
//
// Returned bytes belong to the package, and are valid until its next call. It keeps no bytes that
// are passed in. All calls must come from the one thread that runs the VM.
package proxywasm

import "github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

// VM makes plugin contexts.
type VM interface {
	types.VMContext
	// NewPlugin is NewPluginContext.
	NewPlugin(id uint32) Plugin
}

// Plugin is a plugin context.
type Plugin interface {
	types.PluginContext
	// OnRequest is NewHttpContext and OnHttpRequestHeaders for a host that need not call a stream after
	// its request's headers. If nothing is left to do then, there is no stream, and OnRequest may have
	// replaced headers of the response, which is yet to come.
	OnRequest(id uint32, end bool) (types.HttpContext, types.Action)
}

// LogLevel is the severity of a message, in Envoy's numbers.
type LogLevel uint32

// The log levels that the plugin uses.
const (
	LogInfo  LogLevel = 2
	LogWarn  LogLevel = 3
	LogError LogLevel = 4
)

// LocalResponse is an answer by the proxy in place of the upstream's.
type LocalResponse struct {
	_ [0]func() // keeps Go from generating an equality function

	Status uint32
	// Details go to the access log as response code details.
	Details string
	Headers *Pairs
	Body    string
	// GRPCStatus is the status for gRPC requests, in place of Status.
	GRPCStatus int32
}

// Callout is an HTTP request that the plugin makes through a cluster of the proxy.
type Callout struct {
	// Plugin is the plugin context that makes the callout, which need not be the current one.
	Plugin        uint32
	Cluster       string
	Headers       *Pairs
	Body          []byte
	TimeoutMillis uint32
	// Done is called once, with ok false if there is no answer. While it runs, [CalloutHeader] and
	// [CalloutBody] read the answer. A failure usually arrives as an answer of status 503 or 504.
	Done func(ok bool)
}

// SharedData is the proxy's shared data, in the form that package sharedata uses.
type SharedData struct{}

// Metric identifies a metric of the process. All VMs that define it by the same name share it.
type Metric uint32
