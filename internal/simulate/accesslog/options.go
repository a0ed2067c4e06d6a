package accesslog

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Options say how logs are read. The zero value reads all that speaks for itself.
type Options struct {
	// Format is a member of Formats, or empty: then the first line that fits any of them decides.
	Format string
	// TrustedHops is how many proxies are trusted in front of the writer of the log, as Envoy's
	// xff_num_trusted_hops. The client is the peer of the outermost. It is of use where a log has
	// X-Forwarded-For, and not the address that Envoy has made of it.
	TrustedHops int

	names   map[string]target
	columns []column
}

type column struct {
	column int // from 0
	target
}

// Formats are the names of all formats.
var Formats = []string{"json", "envoy", "istio", "combined", "common"}

// roles are the parts that have a name of their own.
var roles = map[string]target{
	"time":         {role: isTime},
	"path":         {role: isPath},
	"method":       {part: Method},
	"host":         {part: Authority},
	"client_ip":    {role: isClient},
	"duration":     {role: isMillis},
	"request_time": {role: isSeconds},
}

// Map adds what a field of the log is, as NAME=PART: NAME is a field's of JSON, with dots where
// objects are in objects, or the number of a field of text, counted from 1. PART is time, method,
// path, host, client_ip, duration, request_time, header:NAME, response_header:NAME or
// property:PATH. A duration is Envoy's, in milliseconds, and a request_time nginx's, in seconds up
// to the line's time.
func (o *Options) Map(mapping string) error {
	name, value, found := strings.Cut(mapping, "=")
	if !found || name == "" {
		return fmt.Errorf("want NAME=PART such as user=header:x-user, got %.80q", mapping)
	}
	t, isRole := roles[value]
	if !isRole {
		kind, part, _ := strings.Cut(value, ":")
		kinds := map[string]PartKind{"header": Header, "response_header": ResponseHeader, "property": Property}
		k, found := kinds[kind]
		if !found || part == "" {
			return fmt.Errorf("want one of time, method, path, host, client_ip, duration, request_time, header:NAME, response_header:NAME and property:PATH after %.80q, got %.80q",
				name+"=", value)
		}
		if k != Property {
			part = strings.ToLower(part)
		}
		t.part = Part{k, part}
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n < 1 || n > maxTokens {
			return fmt.Errorf("want the number of a field from 1 to %d, got %d", maxTokens, n)
		}
		switch t.role {
		case isTime:
			return errors.New("want the time where the format has it: times of text have no other place")
		case isPath:
			t = target{part: Path}
		case isClient:
			t = target{part: Source}
		}
		o.columns = append(o.columns, column{n - 1, t})
		return nil
	}
	if o.names == nil {
		o.names = map[string]target{}
	}
	o.names[name] = t
	return nil
}

// client is the address that is trusted, of those that X-Forwarded-For lists and of the peer, if
// that is known.
func (o *Options) client(peer, chain string) string {
	if o.TrustedHops == 0 && peer != "" {
		return peer
	}
	hops := o.TrustedHops
	if peer != "" {
		hops--
	}
	outermost := peer
	for chain != "" {
		at := strings.LastIndexByte(chain, ',')
		if address := strings.TrimSpace(chain[at+1:]); address != "" && address != "-" {
			if outermost = address; hops == 0 {
				return address
			}
			hops--
		}
		chain = chain[:max(at, 0)]
	}
	return outermost
}

// areAddresses reports whether a field is X-Forwarded-For, or a dash in its place.
func areAddresses(text string) bool {
	if text == "-" {
		return true
	}
	for address := range strings.SplitSeq(text, ",") {
		address = strings.TrimSpace(address)
		if _, err := netip.ParseAddr(address); err != nil {
			if _, err := netip.ParseAddrPort(address); err != nil {
				return false
			}
		}
	}
	return true
}
