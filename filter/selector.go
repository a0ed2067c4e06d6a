package filter

import (
	"strings"

	"weir/config"
	"weir/internal/clientip"
	"weir/internal/jsonpath"
)

// keyPart is one selector of a key.
type keyPart struct {
	_ [0]func() // keeps Go from generating an equality function

	property int
	// prefix4 and prefix6 are how many bits of an address count, if the part is one.
	address          bool
	prefix4, prefix6 int
}

// counted returns the part of a value that belongs in a key.
func (k *keyPart) counted(value []byte, network *[16]byte) []byte {
	if k.address {
		return clientip.Network(value, k.prefix4, k.prefix6, network)
	}
	return value
}

// verifiedPath is the path of the claims that Envoy's jwt_authn has verified.
const verifiedPath = "metadata\x00filter_metadata\x00envoy.filters.http.jwt_authn\x00"

// selected resolves a selector for a key.
func (r *request) selected(s *config.Selector) (k keyPart) {
	switch s.Kind {
	case config.SelectHeader:
		k.property = r.useProperty(property{header: s.Name})
	case config.SelectMethod:
		k.property = r.useProperty(methodProperty)
	case config.SelectPath:
		k.property = r.usePart(pathProperty, part{kind: barePath})
	case config.SelectPathSegment:
		k.property = r.usePart(pathProperty, part{kind: pathSegment, segment: s.Segment})
	case config.SelectQuery:
		k.property = r.usePart(pathProperty, part{kind: queryParameter, name: s.Name})
	case config.SelectHost:
		k.property = r.usePart(hostProperty, part{kind: bareHost})
	case config.SelectCookie:
		k.property = r.usePart(property{header: "cookie", lines: cookieLines}, part{kind: cookie, name: s.Name})
	case config.SelectClaim:
		path, _ := jsonpath.Compile(s.Claim) // the configuration was checked
		if s.Metadata != "" {
			k.property = r.usePart(property{path: verifiedPath + s.Metadata + "\x00" + path.Join("\x00")}, part{kind: verified})
		} else {
			k.property = r.usePart(property{header: s.Name, lines: onlyLine}, part{kind: claim, name: s.Claim, claim: path, schemeless: s.Name != "authorization"})
		}
	case config.SelectProperty:
		k.property = r.useProperty(property{path: s.Name})
	case config.SelectInNetworks:
		k.property = r.usePart(sourceProperty, part{kind: inNetworks, networks: s.Networks})
	case config.SelectLiteral:
		k.property = r.useProperty(property{part: part{kind: literal, literal: []byte(s.Name)}})
	case config.SelectBody:
		k.property = r.useBody(s.Name, s.Default, s.Longest)
	case config.SelectClientIP:
		k.property = r.useProperty(sourceProperty)
		k.address, k.prefix4, k.prefix6 = true, s.IPv4Prefix, s.IPv6Prefix
	}
	k.property = r.useGroup(k.property, s.Group)
	return k
}

func networkPart(s *config.Selector) part {
	return part{kind: network, segment: s.IPv4Prefix<<8 | s.IPv6Prefix}
}

// propertyOf resolves a selector for anything but a key. Numbers and addresses are read as people write them; in keys, which must not
// change, numbers stay as the host has them.
func (r *request) propertyOf(s *config.Selector) (at int) {
	switch s.Kind {
	case config.SelectHeader:
		at = r.useProperty(property{header: s.Name, lines: onlyLine})
	case config.SelectProperty:
		kind := attribute
		if strings.Contains(s.Name, "metadata\x00") {
			kind = verified
		}
		at = r.usePart(property{path: s.Name}, part{kind: kind})
	case config.SelectClientIP:
		at = r.usePart(sourceProperty, networkPart(s))
	default:
		return r.selected(s).property
	}
	return r.useGroup(at, s.Group)
}
