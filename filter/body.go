package filter

import (
	"encoding/binary"

	"weir/internal/jsonpath"
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// What a request costs may stand in its body, or which rules apply to it, and with which key. Then the request is decided when the body has told, or
// can't: its headers are paused, and its body comes to the stream's callbacks. That is so only of an
// Envoy with allow_on_headers_stop_iteration, which no plugin can see; another one keeps the body until
// the headers go on. So a plugin waits until it knows which of them it has.

const (
	// maxRequestBody is how much of a body is looked at. It is the buffer that Envoy's guide has at
	// its edge (per_connection_buffer_limit_bytes): of a request that is paused, no more might come.
	maxRequestBody = 32 << 10
	// bodyWait is how long a request waits for its body, in nanoseconds.
	bodyWait = int64(5e9)
	// keptAfter is how old a request is at least, in nanoseconds, whose body has come to the proxy and
	// not here, if the proxy keeps bodies: another filter may hold one back for a moment.
	keptAfter = int64(2e8)
)

// bringing says whether the proxy brings the bodies of requests whose headers are paused.
type bringing uint8

const (
	unknown bringing = iota
	brings
	keeps
)

// bodies are those of requests that wait for them.
type bodies struct {
	bringing bringing
	idle     []*told // to be used again
}

// begin is what a request's body has to tell the rules that want to know, nil if none does.
func (b *bodies) begin(rules []requestRule, demands, shadows []node.Demand) *told {
	t, ok := reuse(&b.idle)
	if !ok {
		t = new(told)
	}
	t.add(rules, demands)
	t.add(rules, shadows)
	if len(t.parts) == 0 {
		b.end(t)
		return nil
	}
	return t
}

// comes reports whether the current request has to wait for its body. A body that can't be read has told
// nothing.
func (b *bodies) comes(t *told) bool {
	if b.bringing == keeps || !bodyComes() {
		return false
	}
	t.missing, t.until = len(t.parts), proxywasm.Now()+bodyWait
	if b.bringing == unknown {
		t.headers, t.sized = requestSize()
	}
	return true
}

func (b *bodies) end(t *told) {
	*t = told{parts: t.parts[:0]}
	keep(&b.idle, t, maxIdleReaders)
}

// read reads a piece of the current request's body, and reports whether the request need not wait for
// more.
//
//go:noinline
func (b *bodies) read(t *told, size int, end bool) (done bool) {
	b.bringing = brings
	start := 0
	for most := min(size, maxRequestBody-t.size); start < most && t.missing > 0; {
		piece, ok := proxywasm.RequestBody(start, min(bodyPiece, most-start))
		if !ok || len(piece) == 0 {
			break
		}
		t.feed(piece)
		start += len(piece)
	}
	t.size += start
	read := start == size
	t.whole = read && end
	return !read || end || t.missing == 0 || t.size >= maxRequestBody
}

// late reports whether a request has waited long enough for its body.
func (t *told) late(now int64) bool {
	left := t.until - now // a clock may have been set back
	return left <= 0 || left > bodyWait
}

// isKept reports whether the proxy has something of the current request's body, and keeps it.
func (t *told) isKept(now int64) bool {
	if !t.sized {
		return now >= t.until
	}
	if now < t.until-bodyWait+keptAfter {
		return false
	}
	size, ok := requestSize()
	return !ok || size > t.headers
}

// add adds what the rules of some demands want to know.
func (t *told) add(rules []requestRule, demands []node.Demand) {
	for i := range demands {
		rule := &rules[demands[i].Rule.Index]
		if body := rule.cost.body; body != nil {
			for _, path := range body.Paths {
				t.addNumbers(path)
			}
			if body.Times != nil {
				t.addNumbers(body.Times)
			}
		}
		for _, p := range rule.texts {
			t.addText(p.name, p.claim)
		}
		if p := rule.prices; p.readsBody() {
			t.addText(p.text, p.textPath)
		}
	}
}

func (t *told) addNumbers(path *jsonpath.Path) {
	n := t.another()
	n.path, n.text = path, ""
	n.reader.ResetAll(path)
}

func (t *told) addText(name string, path *jsonpath.Path) {
	if t.textAt(name) >= 0 {
		return
	}
	n := t.another()
	n.path, n.text = path, name
	n.reader.ResetOnly(path)
}

// bodyComes reports whether the current request's body can be read, and comes without an answer
// before. Its type does not matter but for the charset: what is no JSON is known for that when it is read.
func bodyComes() bool {
	if mediaType, ok := proxywasm.RequestHeader("content-type"); ok && !usage.IsUTF8(mediaType) {
		return false
	}
	if encoding, ok := proxywasm.RequestHeader("content-encoding"); ok && string(encoding) != "identity" {
		return false
	}
	if _, upgrades := proxywasm.RequestHeader("upgrade"); upgrades {
		return false
	}
	_, expects := proxywasm.RequestHeader("expect") // which a proxy that answers it has removed
	return !expects && !isGRPC()
}

// requestSize is the size of the current request's headers, and of what the proxy has of its body.
func requestSize() (bytes uint64, ok bool) {
	value, ok := proxywasm.Property("request\x00total_size")
	if !ok || len(value) != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(value), true
}
