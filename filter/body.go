package filter

import (
	"encoding/binary"
	"unicode/utf8"

	"weir/internal/fields"
	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
	"weir/internal/usage"
	"weir/internal/wire"
)

// A request's body may hold its cost, decide which rules apply, or be part of a key. Such a request
// is decided once that is read, or can't be: its headers are paused, and the stream's callbacks
// get the body. That requires an Envoy with allow_on_headers_stop_iteration, which a plugin can't
// detect; without it, Envoy holds the body back until the headers continue. So the plugin first
// finds out how its Envoy behaves.

const (
	// maxRequestBody is how many bytes of a body are read. Envoy's guide for edge proxies has the
	// same buffer (per_connection_buffer_limit_bytes), and a paused request may not receive more.
	maxRequestBody = 32 << 10
	// bodyWait is how long a request waits for its body, in nanoseconds.
	bodyWait = int64(5e9)
	// keptAfter is how old a request must be, in nanoseconds, before a body that has reached the
	// proxy but not the plugin shows that the proxy holds bodies back. Another filter may delay one
	// for a moment.
	keptAfter = int64(2e8)
	// keptFor is for how long that counts, in nanoseconds. The other filter may have taken longer.
	keptFor = int64(60e9)
)

// bringing says whether the proxy delivers the bodies of paused requests.
type bringing uint8

const (
	unknown bringing = iota
	brings
	keeps
	probes // as keeps, but one request finds out again
)

// bodies manages the requests that wait for their bodies.
type bodies struct {
	bringing bringing
	keptAt   int64         // when it was found that the proxy keeps them, or a probe began
	idle     []*bodyValues // to be used again
	rewriting
}

// wanted returns what to read from the current request's body, which is yet to come, for the rules
// that apply by everything else; nil for nothing.
func (b *bodies) wanted(r *rules) *bodyValues {
	v, ok := takeIdle(&b.idle)
	if !ok {
		v = new(bodyValues)
	}
	r.request.beginRequest(nil)
	for i := range r.list {
		if rule := &r.list[i]; rule.readsBody && rule.mode != wire.Off && r.request.applies(rule, hopeful) {
			v.addRule(rule, &r.request.scratch)
		}
	}
	if len(v.parts) == 0 {
		b.release(v)
		return nil
	}
	return v
}

// comes reports whether the current request has to wait for its body. If not, the body counts as
// unread.
func (b *bodies) comes(v *bodyValues) bool {
	now := proxywasm.Now()
	since := now - b.keptAt
	if b.bringing >= keeps && since >= 0 && since < keptFor || !bodyComes() {
		return false
	}
	if b.bringing >= keeps {
		b.bringing, b.keptAt = probes, now
	}
	v.missing, v.until = len(v.parts), now+bodyWait
	if v.sizes {
		_, known := v.bodySize()
		v.sizes = !known
	}
	if b.bringing != brings {
		v.headers, v.sized = requestSize()
		length, _ := proxywasm.RequestHeader("content-length")
		v.least, _ = parseHits(length)
		v.least = min(v.least, maxRequestBody)
	}
	return true
}

func (b *bodies) release(v *bodyValues) {
	*v = bodyValues{parts: v.parts[:0]}
	keepIdle(&b.idle, v, maxIdleReaders)
}

// readPiece reads a piece of the current request's body. It reports whether the request need not wait
// for more, and whether its JSON ends in this piece.
func (b *bodies) readPiece(v *bodyValues, size int, end bool) (done, closes bool) {
	b.bringing = brings
	start, most := 0, min(size, maxRequestBody-v.size)
	for start < most && v.missing > 0 {
		piece, ok := proxywasm.RequestBody(start, min(bodyPiece, most-start))
		if !ok || len(piece) == 0 {
			break
		}
		v.feed(piece)
		start += len(piece)
	}
	if v.missing == 0 && v.sizes {
		start = most
	}
	read := start == size
	v.size += start
	v.whole = read && end
	closes = read && !v.closed && v.complete()
	v.closed = v.closed || closes
	return !read || end || v.missing == 0 && !v.sizes || v.size >= maxRequestBody, closes
}

// late reports whether a request has waited long enough for its body.
func (v *bodyValues) late(now int64) bool {
	left := v.until - now // the clock may have been set back
	return left <= 0 || left > bodyWait
}

// isKept reports whether the proxy holds back the current request's body. A filter before may do so until the body is whole.
func (v *bodyValues) isKept(now int64) bool {
	if !v.sized {
		return now >= v.until
	}
	if now < v.until-bodyWait+keptAfter {
		return false
	}
	size, ok := requestSize()
	return !ok || size > v.headers && size-v.headers >= v.least
}

// addRule adds everything that a rule reads.
func (v *bodyValues) addRule(r *rule, s *scratch) {
	if body := r.cost.body; body != nil {
		v.limits = v.limits || r.config.LimitTokens
		v.sizes = v.sizes || body.BytesPerToken != 0
		for _, path := range body.Paths {
			v.addNumbers(path)
		}
		if body.Times != nil {
			v.addNumbers(body.Times)
		}
	}
	for _, p := range r.texts {
		v.addText(p.name, p.claim)
	}
	if p := r.prices; p.readsBody(s) {
		v.addText(p.text, p.textPath)
		if p.list.HasTiers() {
			v.addText(tierText, tierPath)
			if p.list.Tier(nil, []byte(usage.Fast)) != "" {
				v.addText(speedText, speedPath)
			}
		}
	}
	if r.asks && s.isCompletions() {
		v.addAsk(r.config.Ask)
	}
	if r.identifies && v.textAt(idText) < 0 {
		n := v.addPart()
		n.path, n.text = idPath, idText
		n.reader.Reset(idPath) // a client that gives two may take either
	}
}

// idText is the name of the part of a body with the id of a call of JSON-RPC, and longestID the most that is kept of one.
const (
	idText    = "JSON-RPC's id"
	longestID = 256
)

var idPath, _ = jsonpath.Compile("id")

// appendID appends the id of a call of JSON-RPC, as JSON has it; nothing if there is none that can be told.
func (v *bodyValues) appendID(dst []byte) []byte {
	i := v.textAt(idText)
	if i < 0 {
		return dst
	}
	switch id, kind := v.parts[i].reader.Value(); {
	case len(id) > longestID:
	case kind == jsonpath.Number:
		return append(dst, id...)
	case kind == jsonpath.String && utf8.Valid(id):
		return fields.AppendQuoted(dst, id)
	}
	return dst
}

func (v *bodyValues) addNumbers(path *jsonpath.Path) {
	n := v.addPart()
	n.path, n.text = path, ""
	n.reader.ResetAll(path)
}

func (v *bodyValues) addText(name string, path *jsonpath.Path) {
	if v.textAt(name) >= 0 {
		return
	}
	n := v.addPart()
	n.path, n.text = path, name
	n.reader.ResetOnly(path)
}

// bodyComes reports whether the current request's body is readable and comes before any answer. The
// body's type matters only for the charset: a body that isn't JSON is recognised while it is read.
func bodyComes() bool {
	if mediaType, ok := proxywasm.RequestHeader("content-type"); ok && !usage.IsUTF8(mediaType) {
		return false
	}
	_, expects := proxywasm.RequestHeader("expect") // a proxy that answers it removes it
	return !expects && !isCompressed() && !isGRPC() && !isTunnel(false)
}

// requestSize is the size of the current request's headers, plus that of the part of its body that
// the proxy has.
func requestSize() (bytes uint64, ok bool) {
	value, ok := proxywasm.Property("request\x00total_size")
	if !ok || len(value) != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(value), true
}
