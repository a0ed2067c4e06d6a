// Package accesslog reads the access logs of proxies: Envoy's and Istio's text, JSON, and the
// common and combined formats of nginx and others, compressed by gzip or not.
//
// A [Reader] reads one log, line by line, as it was written: a line is written when its request is
// over, so lines are only nearly in order. A [Merger] puts the requests of several logs in order. A
// [Request] speaks in terms of Envoy, whichever proxy wrote the log: header fields with
// pseudo-headers among them, and properties such as source.address.
package accesslog

import (
	"strconv"
	"strings"
)

// Request is a request as one line tells it.
type Request struct {
	// Time is in nanoseconds since the Unix epoch.
	Time int64
	// Fields are the parts of the request that the log has, none of them twice.
	Fields []Field
}

// Part names something of a request or its response.
type Part struct {
	Kind PartKind
	// Name is a header's in lower case, or a property's path, its parts separated by dots.
	Name string
}

// PartKind tells headers and properties apart.
type PartKind uint8

const (
	// Header is a header of the request, or a pseudo-header such as :path.
	Header PartKind = iota
	// ResponseHeader is a header of the response.
	ResponseHeader
	// Property is an attribute of Envoy's.
	Property
)

// String is how people write a part.
func (p Part) String() string { return kindNames[p.Kind] + p.Name }

var kindNames = [...]string{Header: "header ", ResponseHeader: "response header ", Property: "property "}

// Field is a part that a log has.
type Field struct {
	Part
	// Value is empty if the part is absent.
	Value string
	// Absent says that the log says that the request had no such part.
	Absent bool
}

// Nearly every log tells these.
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
	// Duration is for how long a request lasted, in whole nanoseconds.
	Duration = Part{Property, "request.duration"}
)

// Find is the part of this kind and name. It is nil if the log does not tell.
func (r *Request) Find(kind PartKind, name string) *Field {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Name == name && f.Kind == kind {
			return f
		}
	}
	return nil
}

// lasted notes for how long the request lasted, in units of so many nanoseconds. It is told of no
// request that lasted for longer than a year.
func (r *Request) lasted(text string, unit int64) (nanos int64) {
	const longest = 366 * 86400 * int64(1e9)
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || n > longest/unit {
		return 0
	}
	nanos = n * unit
	for _, digit := range fraction {
		if digit < '0' || digit > '9' {
			return 0
		}
		unit /= 10
		nanos += int64(digit-'0') * unit
	}
	r.overwrite(Duration, strconv.FormatInt(nanos, 10))
	return nanos
}

// Lasted is for how many nanoseconds the request lasted, and whether the log tells.
func (r *Request) Lasted() (nanos int64, told bool) {
	f := r.Find(Duration.Kind, Duration.Name)
	if f == nil || f.Absent {
		return 0, false
	}
	nanos, err := strconv.ParseInt(f.Value, 10, 64)
	return nanos, err == nil
}

// set sets a part. A value that is already there stays.
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

// overwrite sets a part whatever it was, unless the value is absent.
func (r *Request) overwrite(p Part, value string) {
	if f := r.Find(p.Kind, p.Name); f != nil && value != "" && value != "-" {
		f.Value, f.Absent = value, false
		return
	}
	r.set(p, value)
}
