package server

import (
	"context"
	"net/http"
	"time"

	"weir/internal/wire"
)

// maxPolls bounds the answers that wait. A namespace has half of them at most, and there are files left
// for who asks for hits. Beyond it answers come at once, and nodes ask again within their interval.
const maxPolls = 1 << 16

// poll waits until a push is to be answered that waits for another list of overrides. It reports false
// if nobody waits for the answer any more.
func (h *handler) poll(w http.ResponseWriter, r *http.Request, namespace string, body []byte) (answer bool) {
	longest := time.Duration(wire.LongestPoll)
	if !h.polls.Enter(namespace) {
		return true
	}
	defer h.polls.Leave(namespace)
	// The server's deadlines are of answers that come at once.
	out, until := http.NewResponseController(w), time.Now().Add(longest+writeTimeout)
	if out.SetReadDeadline(until) != nil || out.SetWriteDeadline(until) != nil {
		return true
	}
	sender, cancel := awaited(r)
	defer cancel()
	if until, bounded := sender.Deadline(); bounded {
		longest = min(longest, time.Until(until)*3/4)
	}
	ctx, cancel := context.WithTimeout(r.Context(), longest)
	defer cancel()
	defer yields(r)()
	h.backend.Poll(ctx, h.ended, body)
	return r.Context().Err() == nil
}
