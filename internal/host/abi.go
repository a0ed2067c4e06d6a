package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Status is a host call's answer: proxy-wasm's WasmResult.
type Status uint32

// The statuses of the ABI that are answered here.
const (
	StatusOK                  Status = 0
	StatusNotFound            Status = 1
	StatusBadArgument         Status = 2
	StatusInvalidMemoryAccess Status = 6
	StatusCasMismatch         Status = 8
)

// Action is a stream callback's answer.
type Action uint32

// The actions of the ABI. If a body callback answers Pause, the host keeps the body and shows all
// of it to the next callback. A body that exceeds the host's buffer then is answered with 413.
const (
	Continue Action = iota
	Pause
	// PauseWatermark, of a body callback, keeps the body too, and reads no more of it while the
	// buffer is full. The next callback sees what has come since.
	PauseWatermark
	// PauseNoBuffer, of a body callback, drops what it has seen. So does any larger number.
	PauseNoBuffer
)

// bufferLimit is how much of a body the host keeps: per_connection_buffer_limit_bytes of an Envoy
// that sets none.
const bufferLimit = 1 << 20

// Direction names one half of a stream: proxy-wasm's stream type.
type Direction uint32

// The directions that HTTP streams have.
const (
	Request Direction = iota
	Response
)

type mapType uint32

const (
	mapRequestHeaders mapType = iota
	mapRequestTrailers
	mapResponseHeaders
	mapResponseTrailers
	mapGRPCInitialMetadata
	mapGRPCTrailingMetadata
	mapCallResponseHeaders
	mapCallResponseTrailers
	mapTypes
)

type bufferType uint32

const (
	bufferRequestBody bufferType = iota
	bufferResponseBody
	bufferDownstreamData
	bufferUpstreamData
	bufferCallResponseBody
	bufferGRPCReceive
	bufferVMConfiguration
	bufferPluginConfiguration
	bufferTypes
)

// A hostcall is one function of the module env. Its parameters are given as a string: i is an i32,
// I an i64; all answer a Status as i32.
type hostcall struct {
	name   string
	params string
	call   func(vm *VM, a args) Status
	// early calls may happen inside _initialize, main and the guest's allocation; all others trap
	// there.
	early bool
}

// hostcalls is the part of the ABI that a guest can import from env. A suffix _ptr in a comment is an address
// that the answer is written to; name, key, value … are (address, size) pairs.
var hostcalls = []hostcall{
	{"proxy_log", "iii", (*VM).proxyLog, true},                                    // level, message
	{"proxy_get_current_time_nanoseconds", "i", (*VM).proxyGetCurrentTime, false}, // time_ptr

	{"proxy_set_tick_period_milliseconds", "i", (*VM).proxySetTickPeriod, false}, // milliseconds
	{"proxy_set_effective_context", "i", (*VM).proxySetEffectiveContext, false},  // context
	{"proxy_done", "", (*VM).proxyDone, false},

	{"proxy_get_property", "iiii", (*VM).proxyGetProperty, false}, // path, value_ptr, size_ptr

	{"proxy_get_header_map_value", "iiiii", (*VM).proxyGetHeaderMapValue, false},         // map, key, value_ptr, size_ptr
	{"proxy_add_header_map_value", "iiiii", (*VM).proxyAddHeaderMapValue, false},         // map, key, value
	{"proxy_replace_header_map_value", "iiiii", (*VM).proxyReplaceHeaderMapValue, false}, // map, key, value
	{"proxy_remove_header_map_value", "iii", (*VM).proxyRemoveHeaderMapValue, false},     // map, key
	{"proxy_get_header_map_pairs", "iii", (*VM).proxyGetHeaderMapPairs, false},           // map, pairs_ptr, size_ptr
	{"proxy_set_header_map_pairs", "iii", (*VM).proxySetHeaderMapPairs, false},           // map, pairs

	{"proxy_get_buffer_bytes", "iiiii", (*VM).proxyGetBufferBytes, false}, // buffer, start, length, data_ptr, size_ptr
	{"proxy_set_buffer_bytes", "iiiii", (*VM).proxySetBufferBytes, false}, // buffer, start, length, data
	{"proxy_get_configuration", "ii", (*VM).proxyGetConfiguration, false}, // data_ptr, size_ptr (ABI 0.1.0)

	{"proxy_call_foreign_function", "iiiiii", (*VM).proxyCallForeignFunction, false}, // name, argument, result_ptr, size_ptr

	{"proxy_send_local_response", "iiiiiiii", (*VM).proxySendLocalResponse, false}, // status, details, body, headers, grpc_status
	{"proxy_continue_stream", "i", (*VM).proxyContinueStream, false},               // direction
	{"proxy_close_stream", "i", (*VM).proxyCloseStream, false},                     // direction
	{"proxy_continue_request", "", (*VM).proxyContinueRequest, false},              // (ABI 0.1.0)
	{"proxy_continue_response", "", (*VM).proxyContinueResponse, false},            // (ABI 0.1.0)

	{"proxy_http_call", "iiiiiiiiii", (*VM).proxyHTTPCall, false}, // cluster, headers, body, trailers, timeout_ms, id_ptr

	{"proxy_get_shared_data", "iiiii", (*VM).proxyGetSharedData, false}, // key, value_ptr, size_ptr, cas_ptr
	{"proxy_set_shared_data", "iiiii", (*VM).proxySetSharedData, false}, // key, value, cas

	{"proxy_define_metric", "iiii", (*VM).proxyDefineMetric, false},     // kind, name, id_ptr
	{"proxy_increment_metric", "iI", (*VM).proxyIncrementMetric, false}, // id, offset
	{"proxy_record_metric", "iI", (*VM).proxyRecordMetric, false},       // id, value
	{"proxy_get_metric", "ii", (*VM).proxyGetMetric, false},             // id, value_ptr
}

// args are a host call's arguments as wazero has them.
type args []uint64

func (a args) u32(i int) uint32 { return uint32(a[i]) }

// instantiateEnv links the table to the module env of a runtime. The VM comes with the context of
// the call.
func instantiateEnv(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder("env")
	for i, h := range hostcalls {
		params := make([]api.ValueType, len(h.params))
		for j, p := range h.params {
			params[j] = api.ValueTypeI32
			if p == 'I' {
				params[j] = api.ValueTypeI64
			}
		}
		b.NewFunctionBuilder().WithGoModuleFunction(
			api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
				vm := vmOf(ctx)
				vm.calls[i]++
				if vm.restricted && !h.early {
					panic(fmt.Errorf("host call %s inside initialization or allocation", h.name))
				}
				stack[0] = uint64(h.call(vm, stack))
			}), params, []api.ValueType{api.ValueTypeI32}).Export(h.name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("instantiate env: %w", err)
	}
	return nil
}

// A callback is an export of the guest that the host calls.
type callback int

const (
	onContextCreate callback = iota
	onVMStart
	onConfigure
	onTick
	onHTTPCallResponse
	onRequestHeaders
	onRequestBody
	onRequestTrailers
	onResponseHeaders
	onResponseBody
	onResponseTrailers
	onLog
	onDone
	onDelete
	callbackCount
)

// callbacks gives each callback its export, its parameters, and what a missing export answers.
var callbacks = [callbackCount]struct {
	name    string
	params  int
	missing uint64
}{
	onContextCreate:    {"proxy_on_context_create", 2, 0},     // context, parent
	onVMStart:          {"proxy_on_vm_start", 2, 1},           // root, configuration size
	onConfigure:        {"proxy_on_configure", 2, 1},          // root, configuration size
	onTick:             {"proxy_on_tick", 1, 0},               // root
	onHTTPCallResponse: {"proxy_on_http_call_response", 5, 0}, // root, id, headers, body size, trailers
	onRequestHeaders:   {"proxy_on_request_headers", 3, 0},    // stream, headers, end of stream (not in ABI 0.1.0)
	onRequestBody:      {"proxy_on_request_body", 3, 0},       // stream, size, end of stream
	onRequestTrailers:  {"proxy_on_request_trailers", 2, 0},   // stream, trailers
	onResponseHeaders:  {"proxy_on_response_headers", 3, 0},   // stream, headers, end of stream (not in ABI 0.1.0)
	onResponseBody:     {"proxy_on_response_body", 3, 0},      // stream, size, end of stream
	onResponseTrailers: {"proxy_on_response_trailers", 2, 0},  // stream, trailers
	onLog:              {"proxy_on_log", 1, 0},                // context
	onDone:             {"proxy_on_done", 1, 1},               // context
	onDelete:           {"proxy_on_delete", 1, 0},             // context
}

// checkCallback says whether an export can be called as the callback: headers callbacks of ABI
// 0.1.0 have one parameter less.
func checkCallback(cb callback, f api.FunctionDefinition) error {
	got, want := len(f.ParamTypes()), callbacks[cb].params
	short := cb == onRequestHeaders || cb == onResponseHeaders
	if got != want && (!short || got != want-1) || len(f.ResultTypes()) > 1 {
		return fmt.Errorf("export %s: want %d parameters, got %d", callbacks[cb].name, want, got)
	}
	return nil
}

// String is the callback's name without its prefix, as errors show it.
func (cb callback) String() string { return strings.TrimPrefix(callbacks[cb].name, "proxy_") }
