package ratelimitservice

import (
	"strings"

	"weir/ratelimit"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// match returns the limit of a request's descriptor, and the key of its counter, or nil if no limit
// applies. The limit's descriptor and those above it have a key for each entry of the request's
// descriptor. For each entry, the descriptor with its key and value counts, or else the first
// matching wildcard, or else the descriptor with the key alone.
func (d *domain) match(name string, entries []*common.RateLimitDescriptor_Entry) (*limit, ratelimit.Key) {
	key := make(ratelimit.Key, 1, 1+2*len(entries))
	key[0] = name
	at := &d.level
	for i, entry := range entries {
		found, value := at.find(entry.GetKey(), entry.GetValue())
		if found == nil {
			return nil, nil
		}
		key = append(key, entry.GetKey(), value)
		if i == len(entries)-1 {
			return found.limit, key
		}
		at = &found.level
	}
	return nil, nil
}

// labels returns the keys and values that identify a request's hits in metrics. If the limit is
// detailed, these are all of the request. Otherwise they are those of the configuration, with the
// values of descriptors that have toMetric.
func (d *domain) labels(l *limit, entries []*common.RateLimitDescriptor_Entry) (path []string) {
	at := &d.level
	for _, entry := range entries {
		found, counted := at.find(entry.GetKey(), entry.GetValue())
		switch isDefault := found.composite == entry.GetKey(); {
		case l.detailed, found.toMetric, !isDefault && found.parts == nil:
			if path = append(path, entry.GetKey()); counted != "" {
				path[len(path)-1] = compose(entry.GetKey(), counted)
			}
		default:
			path = append(path, found.composite)
		}
		at = &found.level
	}
	return path
}

// find returns the descriptor of an entry, and the value in the counter's key.
func (l *level) find(key, value string) (found *node, counted string) {
	composite := compose(key, value)
	if found := l.byKey[composite]; found != nil {
		return found, value
	}
	for _, n := range l.wildcards {
		if n.matches(composite) {
			if n.share {
				value = strings.TrimPrefix(n.composite, key+"_")
			}
			return n, value
		}
	}
	return l.byKey[key], value
}

// matches reports whether a text has the parts of a wildcard in order, with the first part at its
// beginning and the last at its end.
func (n *node) matches(text string) bool {
	first, last := n.parts[0], n.parts[len(n.parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	rest := text[len(first) : len(text)-len(last)]
	for _, part := range n.parts[1 : len(n.parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// keyOf returns the key for a descriptor with a limit in the request.
func keyOf(domain string, entries []*common.RateLimitDescriptor_Entry) ratelimit.Key {
	key := ratelimit.Key{domain}
	for _, entry := range entries {
		key = append(key, entry.GetKey(), entry.GetValue())
	}
	return key
}
