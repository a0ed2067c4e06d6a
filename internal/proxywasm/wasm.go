//go:build wasip1

package proxywasm

import (
	"unsafe"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// The ABI's functions. Sizes and addresses have 32 bits, though int has 64 on wasip1; a string is
// an address and a size.

//go:wasmimport env proxy_log
func proxyLog(level uint32, message string) uint32

//go:wasmimport env proxy_get_current_time_nanoseconds
func proxyGetCurrentTimeNanoseconds(time *int64) uint32

//go:wasmimport env proxy_set_tick_period_milliseconds
func proxySetTickPeriodMilliseconds(period uint32) uint32

//go:wasmimport env proxy_get_buffer_bytes
func proxyGetBufferBytes(buffer, start, size uint32, data, length *uint32) uint32

//go:wasmimport env proxy_set_buffer_bytes
func proxySetBufferBytes(buffer, start, size uint32, data unsafe.Pointer, length uint32) uint32

//go:wasmimport env proxy_get_header_map_value
func proxyGetHeaderMapValue(headers uint32, name string, data, length *uint32) uint32

//go:wasmimport env proxy_get_header_map_pairs
func proxyGetHeaderMapPairs(headers uint32, data, length *uint32) uint32

//go:wasmimport env proxy_replace_header_map_value
func proxyReplaceHeaderMapValue(headers uint32, name string, value unsafe.Pointer, length uint32) uint32

//go:wasmimport env proxy_remove_header_map_value
func proxyRemoveHeaderMapValue(headers uint32, name string) uint32

//go:wasmimport env proxy_call_foreign_function
func proxyCallForeignFunction(name string, argument unsafe.Pointer, length uint32, data, dataLength *uint32) uint32

//go:wasmimport env proxy_send_local_response
func proxySendLocalResponse(status uint32, details, body string, headers unsafe.Pointer, length uint32, grpcStatus int32) uint32

//go:wasmimport env proxy_get_property
func proxyGetProperty(path string, data, length *uint32) uint32

//go:wasmimport env proxy_set_property
func proxySetProperty(path string, value unsafe.Pointer, length uint32) uint32

//go:wasmimport env proxy_get_shared_data
func proxyGetSharedData(key unsafe.Pointer, keyLength uint32, data, length, cas *uint32) uint32

//go:wasmimport env proxy_set_shared_data
func proxySetSharedData(key unsafe.Pointer, keyLength uint32, value unsafe.Pointer, valueLength, cas uint32) uint32

//go:wasmimport env proxy_set_effective_context
func proxySetEffectiveContext(id uint32) uint32

//go:wasmimport env proxy_continue_stream
func proxyContinueStream(stream uint32) uint32

//go:wasmimport env proxy_http_call
func proxyHTTPCall(cluster string, headers unsafe.Pointer, headersLength uint32, body unsafe.Pointer, bodyLength uint32,
	trailers unsafe.Pointer, trailersLength, timeoutMillis uint32, id *uint32) uint32

//go:wasmimport env proxy_define_metric
func proxyDefineMetric(kind uint32, name string, id *uint32) uint32

//go:wasmimport env proxy_increment_metric
func proxyIncrementMetric(id uint32, by int64) uint32

//go:wasmimport env proxy_record_metric
func proxyRecordMetric(id uint32, value uint64) uint32

//go:wasmimport env proxy_done
func proxyDone() uint32

// Numbers of the ABI.
const (
	statusOK = 0

	bufferRequestBody         = 0
	bufferResponseBody        = 1
	bufferCalloutBody         = 4
	bufferPluginConfiguration = 7

	streamRequest = 0

	mapRequestHeaders  = 0
	mapResponseHeaders = 2
	mapCalloutHeaders  = 6

	metricCounter = 0
	metricGauge   = 1

	// dataStopAndWatermark has the host keep a body back, and the peer send no more once the host's
	// buffer is full. The SDK's ActionPause, 1, has it answer 413 then.
	// See FilterDataStatus in proxy-wasm-cpp-host's include/proxy-wasm/context_interface.h.
	dataStopAndWatermark = 2
)

// vm is the state of this VM: the objects that the host knows by number, and the memory where it
// writes results. A module has a single VM, so only this is global, and nothing of a plugin.
var vm struct {
	context  VM
	plugins  []pluginContext // in a list, because there is nearly always only one
	streams  contexts
	callouts []callout // those that wait for their answers

	returned []byte // where the host writes values
	// Out-parameters are global, because a pointer to a local variable that goes to the host would
	// move the variable to the heap.
	address, length, number uint32
	time                    int64
}

type pluginContext struct {
	id      uint32
	context Plugin
}

// plugin returns the plugin context of an id, or nil.
func plugin(id uint32) Plugin {
	for i := range vm.plugins {
		if vm.plugins[i].id == id {
			return vm.plugins[i].context
		}
	}
	return nil
}

type callout struct {
	id     uint32
	plugin uint32
	done   func(ok bool)
}

func init() {
	vm.returned = make([]byte, 4096)
}

// SetVMContext registers the plugin. A reactor has no main, so an init function calls it.
func SetVMContext(context VM) { vm.context = context }

// Log writes to the proxy's log.
func Log(level LogLevel, message string) { proxyLog(uint32(level), message) }

// Now returns the proxy's time in nanoseconds since the Unix epoch.
func Now() int64 {
	if proxyGetCurrentTimeNanoseconds(&vm.time) != statusOK {
		return 0
	}
	return vm.time
}

// SetTickPeriod asks for ticks of the current plugin context at this period.
func SetTickPeriod(milliseconds uint32) { proxySetTickPeriodMilliseconds(milliseconds) }

// PluginConfiguration returns the current plugin context's configuration.
func PluginConfiguration() (configuration []byte, ok bool) {
	return value(proxyGetBufferBytes(bufferPluginConfiguration, 0, 1<<31-1, &vm.address, &vm.length))
}

// RequestHeader returns the first value of a header of the current stream's request. It works in
// the request phase only.
func RequestHeader(name string) (header []byte, ok bool) {
	return value(proxyGetHeaderMapValue(mapRequestHeaders, name, &vm.address, &vm.length))
}

// RequestLines returns all values of a header of the current stream's request, in the order of
// their lines, and the number of lines. The separator goes between values, and must not be longer
// than the header's name. RequestLines works in the request phase only.
func RequestLines(name, separator string) (values []byte, lines int) {
	pairs, _ := value(proxyGetHeaderMapPairs(mapRequestHeaders, &vm.address, &vm.length))
	return linesOf(pairs, name, separator)
}

// ResponseHeader returns the first value of a header of the current stream's response. It works in
// the response phase only.
func ResponseHeader(name string) (header []byte, ok bool) {
	return value(proxyGetHeaderMapValue(mapResponseHeaders, name, &vm.address, &vm.length))
}

// RequestBody returns at most size bytes, from start on, of the piece of the current stream's
// request body that is being delivered.
func RequestBody(start, size int) (piece []byte, ok bool) {
	return value(proxyGetBufferBytes(bufferRequestBody, uint32(start), uint32(size), &vm.address, &vm.length))
}

// ResponseBody returns at most size bytes, from start on, of the piece of the current stream's
// response body that is being delivered.
func ResponseBody(start, size int) (piece []byte, ok bool) {
	return value(proxyGetBufferBytes(bufferResponseBody, uint32(start), uint32(size), &vm.address, &vm.length))
}

// ReplaceResponseBody replaces the piece of the current stream's response body that is being
// delivered, which has size bytes.
func ReplaceResponseBody(size int, piece []byte) {
	proxySetBufferBytes(bufferResponseBody, 0, uint32(size), unsafe.Pointer(unsafe.SliceData(piece)), uint32(len(piece)))
}

// ReplaceRequestBody replaces the piece of the current stream's request body that is being delivered,
// which has size bytes.
func ReplaceRequestBody(size int, piece []byte) {
	proxySetBufferBytes(bufferRequestBody, 0, uint32(size), unsafe.Pointer(unsafe.SliceData(piece)), uint32(len(piece)))
}

// ReplaceResponseHeader sets a header of the current stream's response, and removes its other
// values.
func ReplaceResponseHeader(name string, value []byte) {
	proxyReplaceHeaderMapValue(mapResponseHeaders, name, unsafe.Pointer(unsafe.SliceData(value)), uint32(len(value)))
}

// ReplaceRequestHeader sets a header of the current stream's request before it continues, and
// removes its other values.
func ReplaceRequestHeader(name string, value []byte) {
	proxyReplaceHeaderMapValue(mapRequestHeaders, name, unsafe.Pointer(unsafe.SliceData(value)), uint32(len(value)))
}

// RemoveRequestHeader removes all values of a header of the current stream's request.
func RemoveRequestHeader(name string) { proxyRemoveHeaderMapValue(mapRequestHeaders, name) }

// ClearRouteCache makes the proxy choose the current stream's route again, by the headers as they
// now are.
func ClearRouteCache() {
	proxyCallForeignFunction("clear_route_cache", nil, 0, &vm.address, &vm.length)
}

// SendLocalResponse answers the current stream. It reports whether the proxy accepted the answer.
func SendLocalResponse(r *LocalResponse) (sent bool) {
	headers := r.Headers.encode()
	return proxySendLocalResponse(r.Status, r.Details, r.Body,
		unsafe.Pointer(unsafe.SliceData(headers)), uint32(len(headers)), r.GRPCStatus) == statusOK
}

// Property returns an attribute of the current stream or of the proxy. Zero bytes separate the
// parts of its path.
func Property(path string) (property []byte, ok bool) {
	return value(proxyGetProperty(path, &vm.address, &vm.length))
}

// SetProperty sets a property of the current stream that [Property] of later filters of the proxy reads,
// if they are of the same form: wasm, or native. Clients can't set it.
func SetProperty(name string, value []byte) {
	proxySetProperty(name, unsafe.Pointer(unsafe.SliceData(value)), uint32(len(value)))
}

// Get implements sharedata.Data.
func (*SharedData) Get(key, buffer []byte) (data []byte, cas uint32, found bool) {
	own := vm.returned
	if cap(buffer) > 0 {
		vm.returned = buffer[:cap(buffer)]
	}
	data, found = value(proxyGetSharedData(unsafe.Pointer(unsafe.SliceData(key)), uint32(len(key)),
		&vm.address, &vm.length, &vm.number))
	vm.returned = own
	return data, vm.number, found
}

// Set implements sharedata.Data.
func (*SharedData) Set(key, value []byte, cas uint32) (written bool) {
	return proxySetSharedData(unsafe.Pointer(unsafe.SliceData(key)), uint32(len(key)),
		unsafe.Pointer(unsafe.SliceData(value)), uint32(len(value)), cas) == statusOK
}

// SetContext makes a stream the current stream, outside its own callbacks.
func SetContext(id uint32) { proxySetEffectiveContext(id) }

// ResumeRequest continues the current stream's request, which was paused.
func ResumeRequest() { proxyContinueStream(streamRequest) }

// Dispatch makes a callout for a plugin context. It reports whether the proxy accepted the callout.
// If not, Done is not called.
func Dispatch(c *Callout) (accepted bool) {
	headers := c.Headers.encode()
	if proxyHTTPCall(c.Cluster, unsafe.Pointer(unsafe.SliceData(headers)), uint32(len(headers)),
		unsafe.Pointer(unsafe.SliceData(c.Body)), uint32(len(c.Body)), nil, 0,
		c.TimeoutMillis, &vm.number) != statusOK {
		return false
	}
	vm.callouts = append(vm.callouts, callout{id: vm.number, plugin: c.Plugin, done: c.Done})
	return true
}

// CalloutHeader returns the first value of a header of the answer that is being delivered.
func CalloutHeader(name string) (header []byte, ok bool) {
	return value(proxyGetHeaderMapValue(mapCalloutHeaders, name, &vm.address, &vm.length))
}

// CalloutBody returns at most limit bytes of the body of the answer that is being delivered.
func CalloutBody(limit int) (body []byte, ok bool) {
	return value(proxyGetBufferBytes(bufferCalloutBody, 0, uint32(limit), &vm.address, &vm.length))
}

// DefineCounter returns the counter of a name, which it makes if there is none.
func DefineCounter(name string) Metric { return define(metricCounter, name) }

// DefineGauge returns the gauge of a name, which it makes if there is none.
func DefineGauge(name string) Metric { return define(metricGauge, name) }

//go:noinline
func define(kind uint32, name string) Metric {
	if proxyDefineMetric(kind, name, &vm.number) != statusOK {
		return 0
	}
	return Metric(vm.number)
}

// Add increments a counter.
func (m Metric) Add(n uint64) { proxyIncrementMetric(uint32(m), int64(n)) }

// Set sets a gauge.
func (m Metric) Set(n uint64) { proxyRecordMetric(uint32(m), n) }

// PluginDone tells the proxy that the current plugin context is done. The context has this id, and
// asked to stay when the proxy ended it.
func PluginDone(id uint32) {
	removePlugin(id)
	proxyDone()
}

// value returns a host call's result, which is in the memory that the call asked the module for.
func value(status uint32) (data []byte, ok bool) {
	if status != statusOK {
		return nil, false
	}
	if vm.length == 0 {
		return vm.returned[:0], true
	}
	// allocate has given the host the start of vm.returned, and nothing else.
	if int(vm.length) > len(vm.returned) {
		return nil, false
	}
	return vm.returned[:vm.length], true
}

// The module's callbacks. Each has an answer for contexts that it doesn't know, so that no host can
// make it panic. Callbacks that the plugin doesn't use are not exported, which saves the host the
// calls.

//go:wasmexport proxy_abi_version_0_2_1
func abiVersion() {}

//go:wasmexport proxy_on_memory_allocate
func allocate(size uint32) unsafe.Pointer {
	if int(size) > len(vm.returned) {
		vm.returned = make([]byte, int(size)+int(size)/4) // pages of shared data grow
	}
	return unsafe.Pointer(unsafe.SliceData(vm.returned))
}

//go:wasmexport proxy_on_context_create
func onContextCreate(id, parent uint32) {
	if parent == 0 {
		addPlugin(id)
		return
	}
	if p := plugin(parent); p != nil {
		vm.streams.put(id, p.NewHttpContext(id))
	}
}

//go:noinline
func addPlugin(id uint32) {
	vm.plugins = append(vm.plugins, pluginContext{id: id, context: vm.context.NewPlugin(id)})
}

//go:wasmexport proxy_on_vm_start
func onVMStart(_, configurationSize uint32) uint32 {
	return truth(bool(vm.context.OnVMStart(int(configurationSize))))
}

//go:wasmexport proxy_on_configure
func onConfigure(id, configurationSize uint32) uint32 {
	p := plugin(id)
	if p == nil {
		return truth(false)
	}
	return truth(bool(p.OnPluginStart(int(configurationSize))))
}

//go:wasmexport proxy_on_tick
func onTick(id uint32) {
	if p := plugin(id); p != nil {
		p.OnTick()
	}
}

//go:wasmexport proxy_on_http_call_response
func onHTTPCallResponse(id, call, headers, _, _ uint32) {
	for i := range vm.callouts {
		if c := vm.callouts[i]; c.id == call {
			dropCallout(i)
			if plugin(c.plugin) != nil {
				c.done(headers != 0)
			}
			return
		}
	}
}

// dropCallout does not keep the order, which has no meaning.
func dropCallout(i int) {
	last := len(vm.callouts) - 1
	vm.callouts[i], vm.callouts[last] = vm.callouts[last], callout{}
	vm.callouts = vm.callouts[:last]
}

//go:wasmexport proxy_on_request_headers
func onRequestHeaders(id, headers, endOfStream uint32) uint32 {
	if s := vm.streams.get(id); s != nil {
		return uint32(s.OnHttpRequestHeaders(int(headers), endOfStream != 0))
	}
	return uint32(types.ActionContinue)
}

// streamOver is added to the action of a stream that needs no more calls.
const streamOver = 2

// onRequest is proxy_on_context_create and proxy_on_request_headers for the native form's host,
// which calls no more for a stream that is over. Envoy's wasm host does not know it.
//
//go:wasmexport weir_on_request_headers
func onRequest(id, parent, endOfStream uint32) uint32 {
	p := plugin(parent)
	if p == nil {
		return uint32(types.ActionContinue) | streamOver
	}
	s, action := p.OnRequest(id, endOfStream != 0)
	if s == nil {
		return uint32(action) | streamOver
	}
	vm.streams.put(id, s)
	return uint32(action)
}

//go:wasmexport proxy_on_request_body
func onRequestBody(id, size, endOfStream uint32) uint32 {
	if s := vm.streams.get(id); s != nil && s.OnHttpRequestBody(int(size), endOfStream != 0) != types.ActionContinue {
		return dataStopAndWatermark
	}
	return uint32(types.ActionContinue)
}

//go:wasmexport proxy_on_request_trailers
func onRequestTrailers(id, trailers uint32) uint32 {
	if s := vm.streams.get(id); s != nil {
		return uint32(s.OnHttpRequestTrailers(int(trailers)))
	}
	return uint32(types.ActionContinue)
}

//go:wasmexport proxy_on_response_headers
func onResponseHeaders(id, headers, endOfStream uint32) uint32 {
	if s := vm.streams.get(id); s != nil {
		return uint32(s.OnHttpResponseHeaders(int(headers), endOfStream != 0))
	}
	return uint32(types.ActionContinue)
}

//go:wasmexport proxy_on_response_body
func onResponseBody(id, size, endOfStream uint32) uint32 {
	if s := vm.streams.get(id); s != nil {
		return uint32(s.OnHttpResponseBody(int(size), endOfStream != 0))
	}
	return uint32(types.ActionContinue)
}

//go:wasmexport proxy_on_response_trailers
func onResponseTrailers(id, trailers uint32) uint32 {
	if s := vm.streams.get(id); s != nil {
		return uint32(s.OnHttpResponseTrailers(int(trailers)))
	}
	return uint32(types.ActionContinue)
}

// There is no proxy_on_delete. It follows proxy_on_done, for streams at once, and would cost each
// request another call; for plugin contexts that stay, it follows [PluginDone].
//
//go:wasmexport proxy_on_done
func onDone(id uint32) uint32 {
	if s := vm.streams.get(id); s != nil {
		s.OnHttpStreamDone()
		vm.streams.remove(id)
	} else if p := plugin(id); p != nil && !p.OnPluginDone() {
		return truth(false)
	} else {
		removePlugin(id)
	}
	return truth(true)
}

// removePlugin forgets a plugin context, and its callouts.
//
//go:noinline
func removePlugin(id uint32) {
	for i := range vm.plugins {
		if vm.plugins[i].id == id {
			vm.plugins = append(vm.plugins[:i], vm.plugins[i+1:]...)
			break
		}
	}
	for i := len(vm.callouts) - 1; i >= 0; i-- {
		if vm.callouts[i].plugin == id {
			dropCallout(i)
		}
	}
}

func truth(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
