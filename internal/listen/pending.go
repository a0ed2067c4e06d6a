package listen

import (
	"container/list"
	"io"
	"net/http"
	"time"
)

const (
	// maxPending bounds the memory of all that is [pending]. Go's heap grows to a
	// multiple of what is in use.
	maxPending = 16 << 20
	// pendingBytes is the memory of such a request without its body: a goroutine, buffers, a header.
	pendingBytes = 16 << 10
	// maxCounted bounds the bytes of a body of HTTP that count. A handler that keeps more of one bounds
	// how many it keeps at a time.
	maxCounted = 1 << 20
	// maxUnread bounds what is read, and forgotten, of a body that a handler has answered without reading it: no handler takes
	// more.
	maxUnread = 16 << 20
	// takenWithin is how long an answer by HTTP/2 may wait for its client and not count: many honest clients may get
	// theirs at once, as when a list has changed that they wait for.
	takenWithin = 2 * time.Second
)

// pending is a request that has not come whole, or whose answer is not taken, with the memory that it
// takes, or the requests of a connection of gRPC whose answers were not taken. Anyone who reaches a
// listener can leave them so. If all take more than maxPending, the address with most of it makes room:
// the connection is closed whose request is unfinished for longest. A request of an honest client is
// unfinished for milliseconds. The lock of Connections guards all fields.
type pending struct {
	of    *connection
	bytes int
	place *list.Element // in the list of its address; nil if it does not count
}

// hold makes a request count for so much memory; 0 ends its counting.
func (p *pending) hold(bytes int) {
	c := p.of.by
	c.mu.Lock()
	by := bytes - p.bytes
	switch {
	case bytes == 0:
		p.leave()
		c.mu.Unlock()
		return
	case p.place == nil:
		p.place = c.pending.Grow(p.of.from, by).Of.PushBack(p)
	default:
		of := &c.pending.Grow(p.of.from, by).Of
		if by < 0 {
			of.MoveToBack(p.place) // its client takes answers
		}
	}
	p.bytes += by
	c.held += by
	var surplus []*connection
	for c.held > maxPending {
		from := c.pending.MakesRoom(p.of.from)
		oldest := from.Of.Front().Value.(*pending)
		surplus = append(surplus, oldest.of)
		c.tell(from.Owner, "unfinished_requests", from.Of.Len())
		oldest.leave()
	}
	c.mu.Unlock()
	for _, s := range surplus {
		s.hangUp()
	}
}

// leave ends the counting. The caller holds the lock.
func (p *pending) leave() {
	if p.place == nil {
		return
	}
	c := p.of.by
	c.pending.Of(p.of.from).Of.Remove(p.place)
	c.pending.Grow(p.of.from, -p.bytes)
	c.held -= p.bytes
	p.place, p.bytes = nil, 0
}

// countingRequests counts the bodies of requests, and their answers by HTTP/2.
func countingRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of, _ := r.Context().Value(connectionKey{}).(*connection)
		if of == nil {
			next.ServeHTTP(w, r)
			return
		}
		if r.ProtoMajor == 2 {
			defer countAnswer(of, w)
		}
		if r.Body != nil && r.Body != http.NoBody { // by HTTP/2 it is none of these, even if it is empty
			b := &body{ReadCloser: r.Body, pending: pending{of: of}}
			b.hold(pendingBytes)
			defer b.hold(0) // even if the handler aborts the connection
			r.Body = b
		}
		next.ServeHTTP(w, r)
		if b, ok := r.Body.(*body); ok && r.ProtoMajor == 2 && !b.ended {
			// Else net/http resets the stream, and curl has no answer. By HTTP/1.1 it reads a part, and then leaves some time.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout / 2)) // a stream had none
			_, _ = io.CopyN(io.Discard, b.ReadCloser, maxUnread)
		}
	})
}

// countAnswer counts what is left of an answer when its handler returns, and a client of HTTP/2 has taken none of it
// for a while. net/http sends small answers only then. To flush them here would cost each a frame.
func countAnswer(of *connection, w http.ResponseWriter) {
	//nolint:staticcheck // a request's context ends with its handler, and only this with its stream
	answer, ok := w.(http.CloseNotifier)
	if !ok {
		return
	}
	taken := answer.CloseNotify()
	go func() {
		late := time.NewTimer(takenWithin)
		defer late.Stop()
		select {
		case <-taken:
			return
		case <-late.C:
		}
		p := pending{of: of}
		p.hold(pendingBytes)
		<-taken
		p.hold(0)
	}()
}

// body is the body of a request, which counts until the request has its answer.
type body struct {
	io.ReadCloser
	pending
	read  int
	ended bool
}

func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	switch counts := min(n, maxCounted-b.read); {
	case err != nil:
		b.ended = true
		b.hold(b.read) // without the rest, since many requests may wait
	case counts > 0:
		b.read += counts
		b.hold(pendingBytes + b.read)
	}
	return n, err
}
