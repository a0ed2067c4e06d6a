// Package accesslog reads the access logs of proxies and load balancers: the text of Envoy and
// Istio, JSON, the common and combined formats of nginx and others, and those of clouds, also
// compressed by gzip.
//
// A [Reader] reads a log line by line, in the order of the lines. A line is written when its
// request ends, so lines are only nearly in the order of time. A [Merger] puts the requests of
// several logs in order. A [Request] has Envoy's terms, whichever proxy wrote the log: header
// fields with pseudo-headers among them, and properties such as source.address.
package accesslog

import (
	"strconv"
	"strings"
)

// Request is the request of a line.
type Request struct {
	// Time is in nanoseconds since the Unix epoch.
	Time int64
	// Fields are the parts of the request that the log has, each once.
	Fields []Field
}

// Part names a part of a request or its response.
type Part struct {
	Kind PartKind
	// Name is a header in lower case, or a property's path with dots.
	Name string
}

// PartKind is the kind of a part.
type PartKind uint8

const (
	// Header is a header of the request, or a pseudo-header such as :path.
	Header PartKind = iota
	// ResponseHeader is a header of the response.
	ResponseHeader
	// Property is an attribute of Envoy.
	Property
)

// String returns the part for people.
func (p Part) String() string { return kindNames[p.Kind] + p.Name }

var kindNames = [...]string{Header: "header ", ResponseHeader: "response header ", Property: "property "}

// Field is a part that a log has.
type Field struct {
	Part
	// Value is empty if the part is absent.
	Value string
	// Absent says that the log records the absence of the part.
	Absent bool
}

// Parts that nearly every log has.
var (
	Method    = Part{Header, ":method"}
	Path      = Part{Header, ":path"}
	Authority = Part{Header, ":authority"}
	Status    = Part{ResponseHeader, ":status"}
	UserAgent = Part{Header, "user-agent"}
	Referer   = Part{Header, "referer"}
	RequestID = Part{Header, "x-request-id"}
	Forwarded = Part{Header, "x-forwarded-for"}
	// Source is the address of the client.
	Source = Part{Property, "source.address"}
	// Duration is the duration of a request in whole nanoseconds.
	Duration = Part{Property, "request.duration"}
)

// Find returns the part of this kind and name, or nil if the log does not have it.
func (r *Request) Find(kind PartKind, name string) *Field {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Name == name && f.Kind == kind {
			return f
		}
	}
	if kind == Authority.Kind && name == Authority.Name {
		return r.Find(kind, "host") // as other programs name it
	}
	return nil
}

// lasted records the duration of the request. unit is the unit of text in nanoseconds. A duration
// of more than a year is ignored.
func (r *Request) lasted(text string, unit int64) (nanos int64) {
	const longest = 366 * 86400 * int64(1e9)
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || n > longest/unit {
		return 0
	}
	nanos, ok := decimal(n, fraction, unit)
	if ok {
		r.overwrite(Duration, strconv.FormatInt(nanos, 10))
	}
	return nanos
}

// Lasted returns the duration of the request in nanoseconds. told is false if the log does not have
// it.
func (r *Request) Lasted() (nanos int64, told bool) {
	f := r.Find(Duration.Kind, Duration.Name)
	if f == nil || f.Absent {
		return 0, false
	}
	nanos, err := strconv.ParseInt(f.Value, 10, 64)
	return nanos, err == nil
}

// set sets a part, unless it has a value already.
func (r *Request) set(p Part, value string) {
	absent := value == "" || value == "-"
	if absent {
		value = ""
	}
	if f := r.Find(p.Kind, p.Name); f == nil {
		r.Fields = append(r.Fields, Field{p, value, absent})
	} else if f.Absent {
		f.Value, f.Absent = value, absent
	}
}

// overwrite sets a part whatever its value was, unless the new value is absent.
func (r *Request) overwrite(p Part, value string) {
	if f := r.Find(p.Kind, p.Name); f != nil && value != "" && value != "-" {
		f.Value, f.Absent = value, false
		return
	}
	r.set(p, value)
}
