//go:build !wasip1

package proxywasm

// Host runs the plugin when it isn't built for wasip1. Its methods have the names and contracts of
// the package's functions. It is as wide as the ABI that it stands for.
type Host interface {
	Log(level LogLevel, message string)
	Now() int64
	SetTickPeriod(milliseconds uint32)
	PluginConfiguration() ([]byte, bool)
	RequestHeader(name string) ([]byte, bool)
	RequestLines(name, separator string) (values []byte, lines int)
	ResponseHeader(name string) ([]byte, bool)
	RequestBody(start, size int) ([]byte, bool)
	ResponseBody(start, size int) ([]byte, bool)
	ReplaceRequestBody(size int, piece []byte)
	ReplaceResponseBody(size int, piece []byte)
	ReplaceResponseHeader(name string, value []byte)
	ReplaceRequestHeader(name string, value []byte)
	RemoveRequestHeader(name string)
	ClearRouteCache()
	SendLocalResponse(r *LocalResponse) bool
	Property(path string) ([]byte, bool)
	SetProperty(name string, value []byte)
	GetSharedData(key []byte) (data []byte, cas uint32, found bool)
	SetSharedData(key, value []byte, cas uint32) bool
	SetContext(id uint32)
	ResumeRequest()
	Dispatch(c *Callout) bool
	CalloutHeader(name string) ([]byte, bool)
	CalloutBody(limit int) ([]byte, bool)
	DefineMetric(name string, gauge bool) Metric
	AddMetric(m Metric, n uint64)
	SetMetric(m Metric, n uint64)
	PluginDone()
}

var host Host

// Use makes h the host of all later calls, until restore is called. There is none before the first
// Use. As in a VM, all calls must come from one goroutine. A caller with several hosts calls Use
// before each callback.
func Use(h Host) (restore func()) {
	before := host
	host = h
	return func() { host = before }
}

// SetVMContext does nothing: who has a host calls the plugin itself.
func SetVMContext(VM) {}

// Log writes to the proxy's log.
func Log(level LogLevel, message string) { host.Log(level, message) }

// Now returns the proxy's time in nanoseconds since the Unix epoch.
func Now() int64 { return host.Now() }

// SetTickPeriod asks for ticks of the current plugin context at this period.
func SetTickPeriod(milliseconds uint32) { host.SetTickPeriod(milliseconds) }

// PluginConfiguration returns the current plugin context's configuration.
func PluginConfiguration() (configuration []byte, ok bool) { return host.PluginConfiguration() }

// RequestHeader returns the first value of a header of the current stream's request. It works in
// the request phase only.
func RequestHeader(name string) (header []byte, ok bool) { return host.RequestHeader(name) }

// RequestLines returns all values of a header of the current stream's request, in the order of
// their lines, and the number of lines. The separator goes between values, and must not be longer
// than the header's name. RequestLines works in the request phase only.
func RequestLines(name, separator string) (values []byte, lines int) {
	return host.RequestLines(name, separator)
}

// ResponseHeader returns the first value of a header of the current stream's response. It works in
// the response phase only.
func ResponseHeader(name string) (header []byte, ok bool) { return host.ResponseHeader(name) }

// RequestBody returns at most size bytes, from start on, of the piece of the current stream's
// request body that is being delivered.
func RequestBody(start, size int) (piece []byte, ok bool) { return host.RequestBody(start, size) }

// ResponseBody returns at most size bytes, from start on, of the piece of the current stream's
// response body that is being delivered.
func ResponseBody(start, size int) (piece []byte, ok bool) { return host.ResponseBody(start, size) }

// ReplaceResponseBody replaces the piece of the current stream's response body that is being
// delivered, which has size bytes.
func ReplaceResponseBody(size int, piece []byte) { host.ReplaceResponseBody(size, piece) }

// ReplaceRequestBody replaces the piece of the current stream's request body that is being delivered,
// which has size bytes.
func ReplaceRequestBody(size int, piece []byte) { host.ReplaceRequestBody(size, piece) }

// ReplaceResponseHeader sets a header of the current stream's response, and removes its other
// values.
func ReplaceResponseHeader(name string, value []byte) { host.ReplaceResponseHeader(name, value) }

// ReplaceRequestHeader sets a header of the current stream's request before it continues, and
// removes its other values.
func ReplaceRequestHeader(name string, value []byte) { host.ReplaceRequestHeader(name, value) }

// RemoveRequestHeader removes all values of a header of the current stream's request.
func RemoveRequestHeader(name string) { host.RemoveRequestHeader(name) }

// ClearRouteCache makes the proxy choose the current stream's route again, by the headers as they
// now are.
func ClearRouteCache() { host.ClearRouteCache() }

// SendLocalResponse answers the current stream. It reports whether the proxy accepted the answer.
func SendLocalResponse(r *LocalResponse) (sent bool) { return host.SendLocalResponse(r) }

// Property returns an attribute of the current stream or of the proxy. Zero bytes separate the
// parts of its path.
func Property(path string) (property []byte, ok bool) { return host.Property(path) }

// SetProperty sets a property of the current stream that [Property] of later filters of the proxy reads,
// if they are of the same form: wasm, or native. Clients can't set it.
func SetProperty(name string, value []byte) { host.SetProperty(name, value) }

// Get implements sharedata.Data.
func (*SharedData) Get(key, buffer []byte) (data []byte, cas uint32, found bool) {
	data, cas, found = host.GetSharedData(key)
	if cap(buffer) == 0 {
		// As in a VM, the result is valid until the next call.
		scratch = append(scratch[:0], data...)
		return scratch, cas, found
	}
	return append(buffer[:0], data...), cas, found
}

var scratch []byte

// Set implements sharedata.Data.
func (*SharedData) Set(key, value []byte, cas uint32) (written bool) {
	return host.SetSharedData(key, value, cas)
}

// SetContext makes a stream the current stream, outside its own callbacks.
func SetContext(id uint32) { host.SetContext(id) }

// ResumeRequest continues the current stream's request, which was paused.
func ResumeRequest() { host.ResumeRequest() }

// Dispatch makes a callout for a plugin context. It reports whether the proxy accepted the callout.
// If not, Done is not called.
func Dispatch(c *Callout) (accepted bool) { return host.Dispatch(c) }

// CalloutHeader returns the first value of a header of the answer that is being delivered.
func CalloutHeader(name string) (header []byte, ok bool) { return host.CalloutHeader(name) }

// CalloutBody returns at most limit bytes of the body of the answer that is being delivered.
func CalloutBody(limit int) (body []byte, ok bool) { return host.CalloutBody(limit) }

// PluginDone tells the proxy that the current plugin context is done. The context has this id, and
// asked to stay when the proxy ended it.
func PluginDone(uint32) { host.PluginDone() }

// DefineCounter returns the counter of a name, which it makes if there is none.
func DefineCounter(name string) Metric { return host.DefineMetric(name, false) }

// DefineGauge returns the gauge of a name, which it makes if there is none.
func DefineGauge(name string) Metric { return host.DefineMetric(name, true) }

// Add increments a counter.
func (m Metric) Add(n uint64) { host.AddMetric(m, n) }

// Set sets a gauge.
func (m Metric) Set(n uint64) { host.SetMetric(m, n) }
