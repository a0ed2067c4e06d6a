// Package proxywasm is the plugin's side of the proxy-wasm ABI, and the only package that knows it.
//
// It has the same functions twice. For wasip1, the form that ships, it binds the host's functions
// directly, and allocates nothing on the path of a request. Natively it forwards to a [Host] of the
// caller's, or to the SDK (github.com/tetratelabs/proxy-wasm-go-sdk), whose proxytest then drives
// the very same filter in plain go test. RATIONALE.md says why the binding is not the SDK's.
//
// Returned bytes belong to the package, and are valid until its next call. Bytes that are passed in
// are not kept. All calls must come from the one thread that runs the VM.
package proxywasm

// LogLevel is how much a message matters, as Envoy numbers it.
type LogLevel uint32

// The log levels that the plugin uses.
const (
	LogInfo  LogLevel = 2
	LogWarn  LogLevel = 3
	LogError LogLevel = 4
)

// LocalResponse is an answer that the proxy gives in the upstream's place.
type LocalResponse struct {
	_ [0]func() // keeps Go from generating an equality function

	Status uint32
	// Details go to the access log as response code details.
	Details string
	Headers *Pairs
	Body    string
	// GRPCStatus is the status that gRPC requests get in place of Status.
	GRPCStatus int32
}

// Callout is an HTTP request that the plugin makes through one of the proxy's clusters.
type Callout struct {
	// Plugin is the plugin context that makes the callout. It need not be the current one.
	Plugin        uint32
	Cluster       string
	Headers       *Pairs
	Body          []byte
	TimeoutMillis uint32
	// Done is called once with the answer, or with ok false if there is none. While it runs,
	// [CalloutHeader] and [CalloutBody] read the answer. A failure usually arrives as an answer of
	// status 503 or 504.
	Done func(ok bool)
}

// SharedData is the proxy's shared data, as package sharedata wants it.
type SharedData struct{}

// Metric is a metric of the process, which all VMs that define it by the same name share.
type Metric uint32
