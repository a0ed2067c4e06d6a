package config

import (
	"slices"
	"strconv"
	"strings"
)

const (
	maxBody            = 64 << 10
	maxResponseHeaders = 32
	maxHeaderValue     = 4096
)

func defaultResponse() Response {
	return Response{Status: 429, Body: problem(429), ContentType: "application/problem+json", GRPCStatus: 8}
}

// problem returns a problem document (RFC 9457).
func problem(status int) string {
	return `{"title":"Rate limit exceeded","status":` + strconv.Itoa(status) + `}`
}

func readResponse(v value) Response {
	r := defaultResponse()
	var body, contentType value
	v.object(`{"status": 429}`,
		field{"status", optional, func(v value) {
			n := v.integer(200, 599)
			r.Status = int(n)
		}},
		field{"body", optional, func(v value) {
			body = v
			r.Body = v.text("a string of at most 65536 bytes", func(s string) bool { return len(s) <= maxBody })
		}},
		field{"content_type", optional, func(v value) {
			contentType = v
			r.ContentType = v.text(`a media type such as "text/plain; charset=utf-8"`, isMediaType)
		}},
		field{"headers", optional, func(v value) { r.Headers = readHeaders(v) }},
		field{"grpc_status", optional, func(v value) {
			n := v.integer(0, 16)
			r.GRPCStatus = int(n)
		}},
	)
	if !body.given() {
		r.Body = problem(r.Status)
	}
	if noBody := r.Status == 204 || r.Status == 205 || r.Status == 304; noBody && body.given() && r.Body != "" {
		body.fail("want none, a response of status " + strconv.Itoa(r.Status) + " has no body")
	} else if noBody {
		r.Body = ""
	}
	if body.given() && !contentType.given() {
		// What Envoy says of its own local replies.
		r.ContentType = "text/plain"
	}
	return r
}

// isMediaType accepts type/subtype, with parameters or without (RFC 9110, 8.3.1); it doesn't look into the parameters.
func isMediaType(text string) bool {
	essence, _, _ := strings.Cut(text, ";")
	kind, subtype, _ := strings.Cut(strings.TrimRight(essence, " "), "/")
	return isToken(kind) && isToken(subtype) && isFieldValue(text) && len(text) <= maxHeaderName
}

func isFieldValue(text string) bool {
	return len(text) <= maxHeaderValue && all(text, isFieldByte) && strings.Trim(text, " \t") == text
}

// ownHeaders are those that a response's headers can't set: fields of their own do, or the proxy does.
var ownHeaders = []string{
	"connection", "content-length", "content-type", "grpc-status", "keep-alive", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade",
}

func readHeaders(v value) (headers []Header) {
	v.entries(`{"x-reason": "rate limit"}`, "headers", maxResponseHeaders, func(name string, v value) {
		name = lower(name)
		switch {
		case !isToken(name):
			v.fail("want the name of a header")
			return
		case slices.Contains(ownHeaders, name):
			v.fail("want no " + list(ownHeaders))
			return
		case slices.ContainsFunc(headers, func(h Header) bool { return h.Name == name }):
			v.fail("given twice")
			return
		}
		const want = "a string of at most 4096 bytes without control characters and outer spaces"
		headers = append(headers, Header{name, v.text(want, isFieldValue)})
	})
	sortStable(headers, func(a, b Header) bool { return a.Name < b.Name })
	return headers
}
