// Command plugin is the plugin of this package's tests, in stock Go. A request has commands in the
// header x-do, separated by semicolons; each adds a line to the header x-result. The configuration
// is such a list too.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"
)

func main() {}

//go:wasmexport proxy_abi_version_0_2_1
func abiVersion() {}

var arena [1 << 21]byte

//go:wasmexport proxy_on_memory_allocate
func allocate(size uint32) unsafe.Pointer {
	if size > uint32(len(arena)) {
		return nil
	}
	return unsafe.Pointer(&arena[0])
}

var (
	contexts   = map[uint32]string{} // id to configuration, of root contexts
	waiting    []uint32              // streams that a tick will act on
	onWake     string
	answerTo   = map[uint32]uint32{} // callout to stream
	delayDone  = map[uint32]bool{}
	lastResult string
)

//go:wasmexport proxy_on_context_create
func onContextCreate(id, parent uint32) {
	if parent == 0 {
		contexts[id] = ""
	}
	count("created")
}

//go:wasmexport proxy_on_vm_start
func onVMStart(id, size uint32) uint32 {
	log(2, "vm_start")
	return 1
}

//go:wasmexport proxy_on_configure
func onConfigure(id, size uint32) uint32 {
	b, _ := buffer(7, 0, size)
	contexts[id] = b
	count("configured")
	if reason, refuse := strings.CutPrefix(b, "refuse "); refuse {
		log(4, reason)
		return 0
	}
	for _, c := range strings.Split(b, ";") {
		run(id, id, c)
	}
	return 1
}

//go:wasmexport proxy_on_request_headers
func onRequestHeaders(id, n, end uint32) uint32 {
	return commands(id, 0)
}

//go:wasmexport proxy_on_response_headers
func onResponseHeaders(id, n, end uint32) uint32 {
	set(2, "x-response-phases", strconv.Itoa(1+atoi(first(get(2, "x-response-phases")))))
	return commands(id, 2)
}

// commands runs the x-do of a header map, and reports whether to pause.
func commands(id, headers uint32) uint32 {
	do, _ := get(headers, "x-do")
	if do == "" {
		return 0
	}
	var action uint32
	var out []string
	for _, c := range strings.Split(do, ";") {
		if c == "pause" {
			action = 1
			continue
		}
		r := run(0, id, c)
		out = append(out, r)
		if strings.HasPrefix(c, "reply ") {
			action = 1
		}
	}
	lastResult = strings.Join(out, "\n")
	set(headers, "x-result", strings.Join(out, "|"))
	return action
}

//go:wasmexport proxy_on_request_body
func onRequestBody(id, size, end uint32) uint32 {
	return body(0, size, end)
}

//go:wasmexport proxy_on_response_body
func onResponseBody(id, size, end uint32) uint32 {
	return body(1, size, end)
}

// body marks the bytes that pass. A body that begins with "hold" is kept until the end of the
// stream. A request's body that begins with "wait" is kept until another context continues it.
func body(kind, size, end uint32) uint32 {
	b, _ := buffer(kind, 0, size)
	if strings.HasPrefix(b, "hold") && end == 0 {
		return 1
	}
	if kind == 0 && strings.HasPrefix(b, "wait") {
		return 2
	}
	if size > 0 && strings.HasPrefix(b, "mark") {
		setBuffer(kind, 0, size, strings.ToUpper(b))
	}
	return 0
}

//go:wasmexport proxy_on_request_trailers
func onRequestTrailers(id, n uint32) uint32 {
	set(1, "x-trailers", strconv.Itoa(int(n)))
	return 0
}

//go:wasmexport proxy_on_response_trailers
func onResponseTrailers(id, n uint32) uint32 {
	set(3, "x-trailers", strconv.Itoa(int(n)))
	return 0
}

//go:wasmexport proxy_on_tick
func onTick(id uint32) {
	count("ticks")
	for _, w := range waiting {
		count("wake_" + strconv.Itoa(int(setEffective(w))))
		run(0, w, onWake)
	}
	waiting = nil
}

//go:wasmexport proxy_on_http_call_response
func onHTTPCallResponse(id, call, headers, size, trailers uint32) {
	status, _ := get(6, ":status")
	b, _ := buffer(4, 0, size)
	lastResult = fmt.Sprintf("%s %q %d", status, b, min(headers, 1))
	count("answers")
	if s, ok := answerTo[call]; ok && setEffective(s) == 0 {
		if status == "200" {
			continueStream(0)
		} else {
			reply(503, "callout", "callout "+lastResult, "", -1)
		}
	}
}

//go:wasmexport proxy_on_log
func onLog(id uint32) {
	path, status := get(0, ":path")
	log(2, fmt.Sprintf("log %s %d", path, status))
	count("logs")
}

//go:wasmexport proxy_on_done
func onDone(id uint32) uint32 {
	count("dones")
	if delayDone[id] {
		return 0
	}
	return 1
}

//go:wasmexport proxy_on_delete
func onDelete(id uint32) {
	count("deletes")
	delete(contexts, id)
}

// run runs one command and returns its result, mostly a status.
func run(root, id uint32, command string) string {
	f := strings.Fields(command)
	if len(f) == 0 {
		return ""
	}
	arg := func(i int) string {
		if i < len(f) {
			return strings.ReplaceAll(f[i], "_", " ")
		}
		return ""
	}
	st := func(s uint32) string { return strconv.Itoa(int(s)) }
	switch f[0] {
	case "ids":
		return fmt.Sprint(len(contexts))
	case "get": // map name
		v, s := get(atou(arg(1)), arg(2))
		return v + " " + st(s)
	case "set":
		return st(set(atou(arg(1)), arg(2), arg(3)))
	case "del":
		return st(remove(atou(arg(1)), arg(2)))
	case "pairs":
		b, s := pairs(atou(arg(1)))
		return fmt.Sprintf("%q %d", b, s)
	case "sdget":
		v, cas, s := sharedGet(f[1])
		return fmt.Sprintf("%s cas %d %d", v, cas, s)
	case "sdset":
		return st(sharedSet(f[1], f[2], atou(f[3])))
	case "incr": // a counter in shared data: get and compare-and-set until it works
		for {
			v, cas, _ := sharedGet(f[1])
			if cas == 0 {
				cas = 0x7fffffff
			}
			if sharedSet(f[1], strconv.Itoa(atoi(v)+1), cas) == 0 {
				return ""
			}
		}
	case "tick":
		return st(setTick(atou(f[1])))
	case "wait": // until a tick, which does the rest of the command
		waiting, onWake = append(waiting, id), strings.Join(f[1:], " ")
		return ""
	case "continue":
		return st(continueStream(atou(f[1])))
	case "reply": // status body grpc headers…
		g := int64(-1)
		if len(f) > 3 {
			g, _ = strconv.ParseInt(f[3], 10, 32)
		}
		return st(reply(atou(f[1]), "by_plugin", arg(2), strings.ReplaceAll(encode(f[min(4, len(f)):]...), "_", " "), int32(g)))
	case "call": // cluster path timeout
		call, s := httpCall(f[1], encode(":method", "POST", ":path", f[2], ":authority", "backend", "x-call", "1"), "ping",
			atou(arg(3)))
		if s == 0 {
			answerTo[call] = id
		}
		return st(s)
	case "badcall":
		_, s := httpCall(f[1], encode(":method", "POST", ":path", "/"), "", 0)
		return st(s)
	case "property":
		v, s := property(strings.Join(f[1:], "\x00"))
		return v + " " + st(s)
	case "port":
		v, s := property("source\x00port")
		if len(v) == 8 {
			v = strconv.FormatUint(binary.LittleEndian.Uint64([]byte(v)), 10)
		}
		return v + " " + st(s)
	case "metric": // kind name offset
		var id uint32
		if s := proxy_define_metric(atou(f[1]), ptr(f[2]), size(f[2]), &id); s != 0 {
			return "define " + st(s)
		}
		var s uint32
		if f[3] == "record" {
			s = proxy_record_metric(id, uint64(atoi(f[4])))
		} else {
			s = proxy_increment_metric(id, int64(atoi(f[3])))
		}
		return fmt.Sprintf("id %d %d", id, s)
	case "time":
		var n uint64
		s := proxy_get_current_time_nanoseconds(&n)
		return strconv.FormatUint(n, 10) + " " + st(s)
	case "effective":
		return st(setEffective(atou(f[1])))
	case "badpointer":
		var p, n uint32
		far := unsafe.Pointer(uintptr(0xfffffff0))
		return st(proxy_get_header_map_value(0, far, 64, &p, &n)) + st(proxy_log(2, far, 64)) +
			st(proxy_get_current_time_nanoseconds((*uint64)(far)))
	case "bodystatus":
		_, s := buffer(atou(f[1]), 0, 100)
		return st(s)
	case "config":
		b, s := buffer(7, 0, 100)
		return b + " " + st(s)
	case "delaydone":
		delayDone[id] = true
		return ""
	case "done":
		return st(proxy_done())
	case "last":
		return lastResult
	case "print":
		fmt.Println("to stdout")
		fmt.Fprint(os.Stderr, "to stderr")
		return ""
	case "exit":
		os.Exit(3)
		return "went on"
	case "panic":
		panic("the guest panics")
	case "grow":
		grown = append(grown, make([]byte, atou(f[1])))
		return ""
	}
	return "unknown command " + f[0]
}

var grown [][]byte

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

func atou(s string) uint32 { return uint32(atoi(s)) }

func first(s string, _ uint32) string { return s }

func encode(namesAndValues ...string) string {
	n := len(namesAndValues) / 2
	b := binary.LittleEndian.AppendUint32(nil, uint32(n))
	for _, s := range namesAndValues[:2*n] {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	}
	for _, s := range namesAndValues[:2*n] {
		b = append(append(b, s...), 0)
	}
	return string(b)
}
