package config

import (
	"strconv"

	"weir/internal/fields"
)

const (
	maxBody            = 64 << 10
	maxResponseHeaders = 32
	maxHeaderValue     = 4096
	// maxGRPCMessage bounds the body for gRPC clients in bytes: it is sent in a header.
	maxGRPCMessage = 1024
)

// response is a response that is being read. body and contentType say that these fields were given,
// since other defaults depend on them.
type response struct {
	Response
	body, contentType bool
}

func defaultResponse() response {
	return response{Response: Response{Status: 429, ContentType: fields.ProblemType, GRPCStatus: 8}}
}

var responseFields = []field{
	{"status", optional}, {"body", optional}, {"content_type", optional}, {"headers", optional}, {"grpc_status", optional},
	{"preset", optional},
}

// read reads a response. Fields that it lacks keep the values of r.
func (r *response) read(v *value) {
	var body, preset *value
	written, status := "", "" // the first given field that a preset would replace, the second but for JSON-RPC
	v.object(`{"status": 429}`, responseFields, func(name string, v *value) {
		switch name {
		case "status":
			if status = name; r.Preset != fields.JSONRPC {
				r.Preset = fields.NoProvider
			}
		case "body", "content_type":
			if r.Preset = fields.NoProvider; written == "" {
				written = name
			}
		}
		switch name {
		case "preset":
			preset = v
		case "status":
			r.Status = int(v.integer(200, 599))
		case "body":
			body = v
			r.body, r.Body = true, v.string("a string of at most 65536 bytes", isBody)
		case "content_type":
			r.contentType, r.ContentType = true, v.string(`a media type such as "text/plain; charset=utf-8"`, isMediaType)
		case "headers":
			r.Headers = readHeaders(v)
		case "grpc_status":
			r.GRPCStatus = int(v.integer(0, 16))
		}
	})
	if preset.given() {
		r.Preset = fields.Provider(1 + preset.choice(fields.Providers))
		if r.Preset != fields.JSONRPC && written == "" {
			written = status
		}
		if written != "" {
			preset.fail("want either preset or " + written + ", got both")
		}
	}
	if r.Preset == fields.JSONRPC && r.bodiless() {
		v.fail("want another status with the preset jsonrpc, a response of status " + strconv.Itoa(r.Status) + " has no body")
	}
	if r.bodiless() && body.given() && r.Body != "" {
		body.fail("want none, a response of status " + strconv.Itoa(r.Status) + " has no body")
	}
}

func (r *response) bodiless() bool { return r.Status == 204 || r.Status == 205 || r.Status == 304 }

// complete returns the response with defaults for the fields that were not given.
func (r *response) complete() *Response {
	c := r.Response
	c.GRPCMessage = fields.Exceeded
	if r.body && !r.contentType {
		// Envoy's own local replies have this type.
		c.ContentType = "text/plain"
	}
	if !r.body {
		c.Body = fields.Problem(c.Status, "")
	} else if lower(essence(c.ContentType)) == "text/plain" && len(c.Body) <= maxGRPCMessage {
		c.GRPCMessage = c.Body
	}
	if r.bodiless() {
		c.Body = ""
	}
	return &c
}

func isBody(text string) bool { return len(text) <= maxBody }

// isMediaType accepts type/subtype, with or without parameters (RFC 9110, 8.3.1). It doesn't check
// the parameters.
func isMediaType(text string) bool {
	kind, subtype := split(essence(text), '/')
	return isToken(kind) && isToken(subtype) && isFieldValue(text) && len(text) <= maxHeaderName
}

// essence is a media type without its parameters.
func essence(mediaType string) string {
	text, _ := split(mediaType, ';')
	for text != "" && text[len(text)-1] == ' ' {
		text = text[:len(text)-1]
	}
	return text
}

// isFieldValue accepts the values that a header may have, without spaces around them.
func isFieldValue(text string) bool {
	return text == "" || made(text, 1, maxHeaderValue, isFieldByte) && text[0] != ' ' && text[len(text)-1] != ' '
}

// readHeaderNames reads other names for the headers about limits.
func readHeaderNames(v *value) (names []fields.Name) {
	if !v.isObject(`{"x-ratelimit-limit": "x-quota-limit"}`) {
		return nil
	}
	v.each("names", 1, len(fields.Names), func(v *value) {
		from := lower(v.name)
		if index(fields.Names, from) < 0 {
			v.fail("want a header of limits: " + list(fields.Names))
			return
		}
		const want = "the name of a header in lower case, such as \"x-quota-limit\""
		to := v.string(want, isOtherName)
		if to == "" {
			return
		}
		for _, name := range names {
			if name.From == from {
				v.givenTwice()
			} else if name.To == to {
				v.fail("want a name that differs from that of " + name.From)
			}
		}
		names = append(names, fields.Name{From: from, To: to})
	})
	return names
}

// isOtherName accepts names that no other header of a response has.
func isOtherName(name string) bool {
	return isToken(name) && lower(name) == name && len(name) <= maxHeaderName && index(ownHeaders, name) < 0 && index(fields.Names, name) < 0
}

// ownHeaders are headers that a response's headers can't set, because other fields or the proxy do.
var ownHeaders = []string{
	"connection", "content-length", "content-type", "grpc-status", "keep-alive", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade",
}

func readHeaders(v *value) (headers []Header) {
	if !v.isObject(`{"x-reason": "rate limit"}`) {
		return nil
	}
	v.each("headers", 0, maxResponseHeaders, func(v *value) {
		name := lower(v.name)
		at := 0
		for at < len(headers) && headers[at].Name < name {
			at++
		}
		switch {
		case !isToken(name):
			v.fail("want the name of a header")
			return
		case index(ownHeaders, name) >= 0:
			v.fail("want no " + list(ownHeaders))
			return
		case at < len(headers) && headers[at].Name == name:
			v.givenTwice()
			return
		}
		const want = "a string of at most 4096 bytes without control characters and outer spaces"
		headers = append(headers, Header{})
		copy(headers[at+1:], headers[at:])
		headers[at] = Header{name, v.string(want, isFieldValue)}
	})
	return headers
}
