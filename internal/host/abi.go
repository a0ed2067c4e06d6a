package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Status is the result of a host call: proxy-wasm's WasmResult.
type Status uint32

// The statuses of the ABI that this host returns.
const (
	StatusOK                  Status = 0
	StatusNotFound            Status = 1
	StatusBadArgument         Status = 2
	StatusInvalidMemoryAccess Status = 6
	StatusCasMismatch         Status = 8
)

// Action is the result of a stream callback.
type Action uint32

// The actions of the ABI. If a body callback answers Pause, the host keeps the body and shows all
// of it to the next callback. A request's body that then exceeds the host's buffer is answered with
// 413.
const (
	Continue Action = iota
	Pause
	// PauseWatermark, from a body callback, keeps the body too, and reads no more of it while the
	// buffer is full. The next callback sees only the part that has come since.
	PauseWatermark
)

// bufferLimit is the size of the host's buffer for a body, in bytes: the
// per_connection_buffer_limit_bytes of an Envoy that sets none.
const bufferLimit = 1 << 20

// Direction is one half of a stream: proxy-wasm's stream type.
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

// A hostcall is one function of the module env. The string params has a letter per parameter: i for
// an i32, I for an i64, and b for bytes of the guest's, an address and a size, which are in its memory
// when the call begins. All return a Status as an i32.
type hostcall struct {
	name   string
	params string
	call   func(vm *VM, a args) Status
	// early calls may happen inside _initialize, main and the guest's allocation; there, all others
	// trap.
	early bool
}

// hostcalls is the part of the ABI that a guest can import from env: what Weir's plugin does. In the comments, a suffix _ptr
// marks an address where the host writes a result; name, key, value … are (address, size) pairs.
var hostcalls = []hostcall{
	{"proxy_log", "ib", (*VM).proxyLog, true},                                     // level, message
	{"proxy_get_current_time_nanoseconds", "i", (*VM).proxyGetCurrentTime, false}, // time_ptr

	{"proxy_set_tick_period_milliseconds", "i", (*VM).proxySetTickPeriod, false}, // milliseconds
	{"proxy_set_effective_context", "i", (*VM).proxySetEffectiveContext, false},  // context
	{"proxy_done", "", (*VM).proxyDone, false},

	{"proxy_get_property", "bii", (*VM).proxyGetProperty, false}, // path, value_ptr, size_ptr
	{"proxy_set_property", "bb", (*VM).proxySetProperty, false},  // path, value

	{"proxy_get_header_map_value", "ibii", (*VM).proxyGetHeaderMapValue, false},        // map, key, value_ptr, size_ptr
	{"proxy_replace_header_map_value", "ibb", (*VM).proxyReplaceHeaderMapValue, false}, // map, key, value
	{"proxy_remove_header_map_value", "ib", (*VM).proxyRemoveHeaderMapValue, false},    // map, key
	{"proxy_get_header_map_pairs", "iii", (*VM).proxyGetHeaderMapPairs, false},         // map, pairs_ptr, size_ptr

	{"proxy_get_buffer_bytes", "iiiii", (*VM).proxyGetBufferBytes, false}, // buffer, start, length, data_ptr, size_ptr
	{"proxy_set_buffer_bytes", "iiib", (*VM).proxySetBufferBytes, false},  // buffer, start, length, data

	{"proxy_call_foreign_function", "bbii", (*VM).proxyCallForeignFunction, false}, // name, argument, result_ptr, size_ptr

	{"proxy_send_local_response", "ibbbi", (*VM).proxySendLocalResponse, false}, // status, details, body, headers, grpc_status
	{"proxy_continue_stream", "i", (*VM).proxyContinueStream, false},            // direction

	{"proxy_http_call", "bbbbii", (*VM).proxyHTTPCall, false}, // cluster, headers, body, trailers, timeout_ms, id_ptr

	{"proxy_get_shared_data", "biii", (*VM).proxyGetSharedData, false}, // key, value_ptr, size_ptr, cas_ptr
	{"proxy_set_shared_data", "bbi", (*VM).proxySetSharedData, false},  // key, value, cas

	{"proxy_define_metric", "ibi", (*VM).proxyDefineMetric, false},      // kind, name, id_ptr
	{"proxy_increment_metric", "iI", (*VM).proxyIncrementMetric, false}, // id, offset
	{"proxy_record_metric", "iI", (*VM).proxyRecordMetric, false},       // id, value
}

// args are a host call's arguments on wazero's stack.
type args []uint64

func (a args) u32(i int) uint32 { return uint32(a[i]) }

// instantiateEnv makes the table the module env of a runtime. The call's context has the VM.
func instantiateEnv(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder("env")
	for i, h := range hostcalls {
		var params []api.ValueType
		var bytes []int // where the addresses are
		for _, p := range h.params {
			switch p {
			case 'I':
				params = append(params, api.ValueTypeI64)
				continue
			case 'b':
				bytes = append(bytes, len(params))
				params = append(params, api.ValueTypeI32)
			}
			params = append(params, api.ValueTypeI32)
		}
		b.NewFunctionBuilder().WithGoModuleFunction(
			api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
				vm := vmOf(ctx)
				vm.calls[i]++
				if vm.restricted && !h.early {
					panic(fmt.Errorf("host call %s inside initialization or allocation", h.name))
				}
				for _, at := range bytes {
					if _, ok := vm.memory.Read(uint32(stack[at]), uint32(stack[at+1])); !ok {
						stack[0] = uint64(StatusInvalidMemoryAccess)
						return
					}
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

// callbacks gives each callback its export, its parameters, and its result if the guest does not
// export it.
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
	onRequestHeaders:   {"proxy_on_request_headers", 3, 0},    // stream, headers, end of stream
	onRequestBody:      {"proxy_on_request_body", 3, 0},       // stream, size, end of stream
	onRequestTrailers:  {"proxy_on_request_trailers", 2, 0},   // stream, trailers
	onResponseHeaders:  {"proxy_on_response_headers", 3, 0},   // stream, headers, end of stream
	onResponseBody:     {"proxy_on_response_body", 3, 0},      // stream, size, end of stream
	onResponseTrailers: {"proxy_on_response_trailers", 2, 0},  // stream, trailers
	onLog:              {"proxy_on_log", 1, 0},                // context
	onDone:             {"proxy_on_done", 1, 1},               // context
	onDelete:           {"proxy_on_delete", 1, 0},             // context
}

// checkCallback refuses an export that can't be called as the callback.
func checkCallback(cb callback, f api.FunctionDefinition) error {
	got, want := len(f.ParamTypes()), callbacks[cb].params
	if got != want || len(f.ResultTypes()) > 1 {
		return fmt.Errorf("export %s: want %d parameters, got %d", callbacks[cb].name, want, got)
	}
	return nil
}

// String returns the callback's name without its prefix, as in errors.
func (cb callback) String() string { return strings.TrimPrefix(callbacks[cb].name, "proxy_") }
