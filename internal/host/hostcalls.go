package host

import (
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bytes returns a view of the bytes whose address is argument i, which is valid until the guest runs
// again.
func (vm *VM) bytes(a args, i int) []byte {
	view, _ := vm.memory.Read(a.u32(i), a.u32(i+1)) // instantiateEnv has seen that they are there
	return view
}

func (vm *VM) writeU32(ptr, v uint32) Status {
	if !vm.memory.WriteUint32Le(ptr, v) {
		return StatusInvalidMemoryAccess
	}
	return StatusOK
}

func (vm *VM) writeU64(ptr uint32, v uint64) Status {
	if !vm.memory.WriteUint64Le(ptr, v) {
		return StatusInvalidMemoryAccess
	}
	return StatusOK
}

// give copies a value into memory that the guest allocates, and writes its address and size. An
// empty value needs no memory.
func give[V ~string | ~[]byte](vm *VM, value V, ptrPtr, sizePtr uint32) Status {
	var ptr uint32
	if len(value) > 0 {
		ptr = vm.allocate(uint32(len(value)))
		view, ok := vm.memory.Read(ptr, uint32(len(value)))
		if ptr == 0 || !ok {
			return StatusInvalidMemoryAccess
		}
		copy(view, value)
	}
	if !vm.memory.WriteUint32Le(ptrPtr, ptr) {
		return StatusInvalidMemoryAccess
	}
	return vm.writeU32(sizePtr, uint32(len(value)))
}

// allocate asks the guest for memory. If the guest traps, the trap passes through the host call
// into the running callback.
func (vm *VM) allocate(size uint32) uint32 {
	outer := vm.restricted
	vm.restricted = true
	vm.mstack[0] = uint64(size)
	if err := vm.malloc.CallWithStack(vm.ctx, vm.mstack[:]); err != nil {
		panic(err)
	}
	vm.restricted = outer
	return uint32(vm.mstack[0])
}

// ---- the guest's log and clock

func (vm *VM) proxyLog(a args) Status {
	level := a.u32(0)
	if level >= uint32(len(levels)) {
		return StatusBadArgument
	}
	if vm.capture != nil || vm.config.Logger.Enabled(vm.ctx, levels[level]) {
		vm.log(levels[level], string(vm.bytes(a, 1)))
	}
	return StatusOK
}

func (vm *VM) proxyGetCurrentTime(a args) Status {
	return vm.writeU64(a.u32(0), uint64(vm.process.clock()))
}

// ---- contexts

func (vm *VM) proxySetTickPeriod(a args) Status {
	if vm.scope.root == nil {
		return StatusBadArgument
	}
	vm.scope.root.setPeriod(time.Duration(a.u32(0)) * time.Millisecond)
	return StatusOK
}

// proxySetEffectiveContext makes host calls act on another context until the running callback ends;
// 0 is the callback's own.
func (vm *VM) proxySetEffectiveContext(a args) Status {
	if a.u32(0) == 0 {
		vm.scope = vm.caller
		return StatusOK
	}
	s, ok := vm.contexts[a.u32(0)]
	if !ok {
		return StatusBadArgument
	}
	vm.scope = s
	return StatusOK
}

func (vm *VM) proxyDone(args) Status {
	r := vm.scope.root
	if r == nil || r.state != rootWaiting {
		return StatusNotFound
	}
	vm.after(func() { vm.deleteRoot(r) })
	return StatusOK
}

// ---- properties

func (vm *VM) proxyGetProperty(a args) Status {
	value, ok := vm.property(dotted(vm.bytes(a, 0)))
	if !ok {
		return StatusNotFound
	}
	return give(vm, value, a.u32(2), a.u32(3))
}

// proxySetProperty writes to the stream's state. The proxy has a single filter, so that only this
// reads it.
func (vm *VM) proxySetProperty(a args) Status {
	s := vm.scope.stream
	if s == nil {
		return StatusNotFound
	}
	if s.state == nil {
		s.state = map[string]string{}
	}
	s.state[dotted(vm.bytes(a, 0))] = string(vm.bytes(a, 2))
	return StatusOK
}

// dotted writes a path of the ABI, whose parts are separated by zero bytes, with dots, as users do.
func dotted(path []byte) string {
	return strings.ReplaceAll(strings.TrimSuffix(string(path), "\x00"), "\x00", ".")
}

// property returns an attribute of the context. Numbers are 8 bytes, little-endian.
func (vm *VM) property(path string) (string, bool) {
	root, s := vm.scope.root, vm.scope.stream
	if name, ok := strings.CutPrefix(path, "xds.node.metadata."); ok {
		text, ok := vm.process.metadata[name]
		return text, ok
	}
	switch path {
	case "node.id":
		return vm.process.nodeID, true
	case "plugin_vm_id":
		return vm.config.ID, true
	case "plugin_name":
		if root != nil {
			return root.plugin.Name, true
		}
	case "plugin_root_id":
		if root != nil {
			return root.plugin.RootID, true
		}
	}
	if s == nil {
		return "", false
	}
	if v, ok := s.state[path]; ok {
		return v, true
	}
	return s.property(path)
}

// joined returns all values of a header with commas between them.
func joined(h *Headers, name string) (string, bool) {
	if _, ok := h.Get(name); !ok {
		return "", false
	}
	return strings.Join(h.Values(name), ","), true
}

// headerOf has the properties that are headers of the request.
var headerOf = map[string]string{
	"request.path": ":path", "request.host": ":authority", "request.method": ":method", "request.scheme": ":scheme", "request.id": "x-request-id",
}

func (s *Stream) property(path string) (string, bool) {
	present := func(v string) (string, bool) { return v, v != "" }
	request := s.half[Request].headers
	if name := headerOf[path]; name != "" {
		return request.Get(name)
	}
	switch path {
	case "source.address":
		return present(s.info.Source)
	case "source.port":
		return port(s.info.Source)
	case "destination.address":
		return present(s.info.Destination)
	case "destination.port":
		return port(s.info.Destination)
	case "request.protocol":
		return present(s.info.Protocol)
	case "request.url_path":
		v, ok := request.Get(":path")
		v, _, _ = strings.Cut(v, "?")
		return v, ok
	case "request.query":
		v, ok := request.Get(":path")
		_, v, _ = strings.Cut(v, "?")
		return v, ok
	case "response.code":
		status, ok := s.half[Response].headers.Get(":status")
		return number(status, ok)
	case "response.code_details":
		if s.local != nil {
			return present(s.local.Details)
		}
		if s.failed.details == "" && s.half[Response].headers != nil {
			return "via_upstream", true
		}
		return present(s.failed.details)
	case "upstream.local_address":
		return present(s.failed.address)
	}
	if name, ok := strings.CutPrefix(path, "request.headers."); ok {
		return joined(request, name)
	}
	if name, ok := strings.CutPrefix(path, "response.headers."); ok {
		return joined(s.half[Response].headers, name)
	}
	return "", false
}

// ---- header maps

func (vm *VM) headerMap(t mapType) (*Headers, Status) {
	s := vm.scope.stream
	switch t {
	case mapCallResponseHeaders:
		if vm.answer == nil || vm.answer.Headers == nil {
			return nil, StatusBadArgument
		}
		return vm.answer.Headers, StatusOK
	case mapRequestHeaders, mapRequestTrailers, mapResponseHeaders, mapResponseTrailers:
		if s == nil {
			return nil, StatusBadArgument
		}
		part := headersPart
		if t == mapRequestTrailers || t == mapResponseTrailers {
			part = trailersPart
		}
		if t == mapRequestHeaders || t == mapRequestTrailers {
			return s.headerMap(Request, part)
		}
		return s.headerMap(Response, part)
	}
	return nil, StatusBadArgument
}

// mutableMap finds a header map for writing. In the log phase there is none, and a callout's answer
// can't be changed.
func (vm *VM) mutableMap(t mapType) (*Headers, Status) {
	if s := vm.scope.stream; s == nil || s.phase >= logPhase || t > mapResponseTrailers {
		return nil, StatusBadArgument
	}
	return vm.headerMap(t)
}

func (vm *VM) proxyGetHeaderMapValue(a args) Status {
	h, status := vm.headerMap(mapType(a.u32(0)))
	if status != StatusOK {
		return status
	}
	value, ok := lookup(h, vm.bytes(a, 1))
	if !ok {
		return StatusNotFound
	}
	return give(vm, value, a.u32(3), a.u32(4))
}

func (vm *VM) proxyReplaceHeaderMapValue(a args) Status {
	h, status := vm.mutableMap(mapType(a.u32(0)))
	if status != StatusOK {
		return status
	}
	h.Set(string(vm.bytes(a, 1)), string(vm.bytes(a, 3)))
	return StatusOK
}

func (vm *VM) proxyRemoveHeaderMapValue(a args) Status {
	h, status := vm.mutableMap(mapType(a.u32(0)))
	if status != StatusOK {
		return status
	}
	h.Del(string(vm.bytes(a, 1)))
	return StatusOK
}

// proxyCallForeignFunction knows clear_route_cache, the one function that Weir calls. It does
// nothing, because the proxy has a single route.
func (vm *VM) proxyCallForeignFunction(a args) Status {
	if string(vm.bytes(a, 0)) != "clear_route_cache" {
		return StatusNotFound
	}
	return StatusOK
}

func (vm *VM) proxyGetHeaderMapPairs(a args) Status {
	h, status := vm.headerMap(mapType(a.u32(0)))
	if status != StatusOK {
		return status
	}
	vm.scratch = appendPairs(vm.scratch[:0], h)
	return give(vm, vm.scratch, a.u32(1), a.u32(2))
}

// pairs reads a header map that the guest has serialized.
func (vm *VM) pairs(a args, i int) (*Headers, Status) {
	h, ok := parsePairs(vm.bytes(a, i))
	if !ok {
		return nil, StatusBadArgument
	}
	return h, StatusOK
}

// ---- buffers

func (vm *VM) buffer(t bufferType) ([]byte, Status) {
	s := vm.scope.stream
	switch {
	case t >= bufferTypes:
		return nil, StatusBadArgument
	case t == bufferRequestBody && s != nil && s.half[Request].reach&bodyPart != 0:
		return s.half[Request].body, StatusOK
	case t == bufferResponseBody && s != nil && s.half[Response].reach&bodyPart != 0:
		return s.half[Response].body, StatusOK
	case t == bufferCallResponseBody && vm.answer != nil:
		return vm.answer.Body, StatusOK
	case t == bufferPluginConfiguration && vm.starting != nil:
		return vm.starting.Configuration, StatusOK
	}
	return nil, StatusNotFound
}

// proxyGetBufferBytes gives as much of the range as the buffer has.
func (vm *VM) proxyGetBufferBytes(a args) Status {
	b, status := vm.buffer(bufferType(a.u32(0)))
	if status != StatusOK {
		return status
	}
	start, end := uint64(a.u32(1)), uint64(a.u32(1))+uint64(a.u32(2))
	if start > uint64(len(b)) || end > 1<<32-1 && start > 0 {
		return StatusBadArgument
	}
	return give(vm, b[start:min(end, uint64(len(b)))], a.u32(3), a.u32(4))
}

// proxySetBufferBytes prepends to a body, replaces it, or appends to it, as Envoy does. Neither can
// do more.
func (vm *VM) proxySetBufferBytes(a args) Status {
	t := bufferType(a.u32(0))
	if t != bufferRequestBody && t != bufferResponseBody {
		return StatusBadArgument
	}
	b, status := vm.buffer(t)
	if status != StatusOK {
		return status
	}
	data := vm.bytes(a, 3)
	start, length := uint64(a.u32(1)), uint64(a.u32(2))
	body := &vm.scope.stream.half[t].body // the two types are the two directions
	switch {
	case start == 0 && length == 0:
		*body = slices.Concat(data, b)
	case start == 0 && length >= uint64(len(b)):
		*body = slices.Clone(data)
	case start >= uint64(len(b)):
		*body = append(b, data...)
	default:
		return StatusBadArgument
	}
	return StatusOK
}

// ---- the stream's way

func (vm *VM) proxySendLocalResponse(a args) Status {
	details := vm.bytes(a, 1)
	body := vm.bytes(a, 3)
	headers, status := vm.pairs(a, 5)
	if status != StatusOK {
		return status
	}
	if s := vm.scope.stream; s != nil {
		s.reply(s.newLocalReply(a.u32(0), string(details), slices.Clone(body), headers, int32(a.u32(7))))
	}
	return StatusOK
}

// proxyContinueStream does nothing in a root context, as in Envoy.
func (vm *VM) proxyContinueStream(a args) Status {
	d := Direction(a.u32(0))
	if d > Response {
		return StatusBadArgument
	}
	if s := vm.scope.stream; s != nil {
		s.resume(d)
	}
	return StatusOK
}

// ---- callouts

func (vm *VM) proxyHTTPCall(a args) Status {
	cluster := vm.bytes(a, 0)
	headers, status := vm.pairs(a, 2)
	if status != StatusOK {
		return status
	}
	for _, name := range []string{":method", ":path", ":authority"} {
		if headers.Value(name) == "" {
			return StatusBadArgument
		}
	}
	if _, known := vm.process.Cluster(string(cluster)); !known || vm.scope.root == nil {
		return StatusBadArgument
	}
	vm.nextCallout++
	c := Callout{
		ID:      vm.nextCallout,
		Root:    vm.scope.root,
		Cluster: string(cluster),
		Headers: headers,
		Body:    slices.Clone(vm.bytes(a, 4)),
		Timeout: time.Duration(a.u32(8)) * time.Millisecond,
	}
	if status := vm.writeU32(a.u32(9), c.ID); status != StatusOK {
		return status
	}
	vm.callouts[c.ID] = c.Root
	if vm.config.OnCallout != nil {
		vm.config.OnCallout(c)
	}
	return StatusOK
}

// ---- shared data

func (vm *VM) proxyGetSharedData(a args) Status {
	var cas uint32
	var status Status
	vm.scratch, cas, status = vm.data.get(vm.scratch, vm.bytes(a, 0))
	if status != StatusOK {
		return status
	}
	if status := give(vm, vm.scratch, a.u32(2), a.u32(3)); status != StatusOK {
		return status
	}
	return vm.writeU32(a.u32(4), cas)
}

func (vm *VM) proxySetSharedData(a args) Status {
	return vm.data.set(vm.bytes(a, 0), vm.bytes(a, 2), a.u32(4))
}

// ---- metrics

func (vm *VM) proxyDefineMetric(a args) Status {
	id, status := vm.process.metrics.define(MetricKind(a.u32(0)), string(vm.bytes(a, 1)))
	if status != StatusOK {
		return status
	}
	return vm.writeU32(a.u32(3), id)
}

func (vm *VM) proxyIncrementMetric(a args) Status {
	return vm.process.metrics.increment(a.u32(0), int64(a[1]))
}

func (vm *VM) proxyRecordMetric(a args) Status { return vm.process.metrics.record(a.u32(0), a[1]) }

// number encodes a property of Envoy's type int64.
func number(decimal string, ok bool) (string, bool) {
	n, err := strconv.ParseUint(decimal, 10, 63)
	if !ok || err != nil {
		return "", false
	}
	return string(binary.LittleEndian.AppendUint64(nil, n)), true
}

func port(address string) (string, bool) {
	_, port, err := net.SplitHostPort(address)
	return number(port, err == nil)
}
