package accesslog

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Options say how to read logs. With the zero value, the reader finds the format itself and knows
// the common names of fields.
type Options struct {
	// Format is a member of Formats. If it is empty, the first line that fits a format decides.
	Format string
	// TrustedHops is the number of trusted proxies in front of the proxy that wrote the log, as in
	// Envoy's xff_num_trusted_hops. The peer of the outermost is the client. It matters for logs
	// that have X-Forwarded-For but not the client's address as Envoy determines it.
	TrustedHops int

	names   map[string]target
	columns []column
}

type column struct {
	column int // from 0
	target
}

// Formats are the names of all formats.
var Formats = []string{"json", "envoy", "istio", "alb", "combined", "vhost_combined", "common", "caddy", "traefik", "gcp", "cloudfront"}

// roles are the parts with a name of their own.
var roles = map[string]target{
	"time":         {role: isTime},
	"path":         {role: isPath},
	"method":       {part: Method},
	"host":         {part: Authority},
	"client_ip":    {role: isClient},
	"duration":     {role: isMillis},
	"request_time": {role: isSeconds},
}

// Map gives a field of the log a meaning, as NAME=PART. NAME is a field of JSON, with dots for
// nested objects, or the number of a field of text, counted from 1. PART is time, method, path,
// host, client_ip, duration, request_time, header:NAME, response_header:NAME or property:PATH. A
// duration is in milliseconds, as Envoy's. A request_time is in seconds and ends at the line's
// time, as nginx's.
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
			return errors.New("want no other place for the time than that of the text format")
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

// mapColumns gives the fields of a line of text the meanings that Map has given them.
func (o *Options) mapColumns(r *Request, n int, field func(int) string) {
	for _, m := range o.columns {
		if m.column >= n {
			continue
		}
		switch text := field(m.column); m.role {
		case isMillis:
			r.lasted(text, 1e6)
		case isSeconds:
			r.Time -= r.lasted(text, 1e9)
		default:
			r.overwrite(m.part, text)
		}
	}
}

// client returns the trusted client address, from X-Forwarded-For and the peer, if the peer is
// known.
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

// isForwarded reports whether a field is an X-Forwarded-For, or a dash in its place. Proxies append the
// addresses of those that connect to them; before these is whatever a client has sent.
func isForwarded(text string) bool {
	if text == "-" {
		return true
	}
	address := strings.TrimSpace(text[strings.LastIndexByte(text, ',')+1:])
	if _, err := netip.ParseAddr(address); err == nil {
		return true
	}
	_, err := netip.ParseAddrPort(address)
	return err == nil
}
