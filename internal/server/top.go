package server

import "net/http"

// TopPath is the path of the nodes' figures about a namespace's keys.
const TopPath = "/v1/top"

// maxLookers bounds the concurrent requests that read reports, and besides the streams that do: reports are long, and pushes
// should not wait for them. Those of a full namespace take some 600 MB to read. A namespace has at most half of them.
const maxLookers = 4

// top answers with what nodes have seen of a namespace's keys, or of those of a rule.
func (h *handler) top(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	first, err := topAsked(r.URL.Query().Get("keys"))
	if err != nil {
		return nil, err
	}
	top, err := h.backend.Top(r.Context(), namespace, r.URL.Query().Get("rule"))
	if err == nil && first > 0 {
		err = h.stand(r, namespace, &top, first)
	}
	return top, err
}
