package server

import (
	"context"
	"net/http"
	"time"

	"weir/internal/listen"
	"weir/internal/wire"
)

// maxPolls bounds the delayed answers. A namespace has at most half of them, so that files are left
// for other pushes. Beyond it, answers come at once, and nodes ask again within their interval.
const maxPolls = 1 << 16

// poll delays a push that waits for a new list of overrides, for at most seven eighths of the time that
// ctx leaves. Nodes leave 35 seconds, so they are answered after [wire.LongestPoll]. It returns false if
// the client no longer waits for the answer.
func (h *handler) poll(ctx context.Context, w http.ResponseWriter, r *http.Request, namespace string, body []byte) (answer bool) {
	longest := time.Duration(wire.LongestPoll)
	if !h.polls.Enter(namespace) {
		return true
	}
	defer h.polls.Leave(namespace)
	// The server's deadlines are for answers that come at once.
	out, until := http.NewResponseController(w), time.Now().Add(longest+listen.WriteTimeout)
	if out.SetReadDeadline(until) != nil || out.SetWriteDeadline(until) != nil {
		return true
	}
	if until, bounded := ctx.Deadline(); bounded {
		longest = min(longest, time.Until(until)*7/8)
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	defer listen.Yields(r)()
	h.backend.Poll(ctx, h.ended, body)
	return r.Context().Err() == nil
}
