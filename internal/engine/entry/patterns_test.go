package entry

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"weir/internal/counter"
	"weir/internal/must"
	"weir/internal/wire"
)

// Two keys have the same name by a pattern if and only if they are alike in that part of their values, and
// it takes no memory to find out. Whatever a key is, nothing panics.
func FuzzShape(f *testing.F) {
	f.Add("sk-live-ann", "sk-live-bob", "x", uint16(64), byte(0), true)
	f.Add("10.1.2.3", "10.1.9.9", "x", uint16(16), byte(2), true)
	f.Add("2001:db8::1", "::ffff:10.1.2.3", "", uint16(33), byte(3), true)
	f.Add("\x0a\x01\x02\x03", "\x0a\x01\xff\xff", "x", uint16(17), byte(2), false)
	f.Add("\x0a\x01\x02\x03", "10.1.9.9", "x", uint16(16), byte(2), true)
	f.Add("::12", "58.58.255.1", "x", uint16(16), byte(2), true)
	f.Add("\x20\x01\x0d\xb8\x00\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07", "2001:db8:1:2::10", "x", uint16(32), byte(3), true)
	f.Fuzz(func(t *testing.T, a, b, other string, bits uint16, kind byte, textual bool) {
		s := Shape{Pattern: wire.Pattern{Kind: []byte{wire.ByPrefix, wire.BySuffix, wire.ByNetwork, wire.ByNetwork}[kind%4], Part: 1, V6: kind%4 == 3, Bits: bits}, Textual: textual}
		if s.Kind == wire.ByNetwork {
			s.Bits %= 33
		} else {
			s.Bits = s.Bits % 1024 * 8
		}
		name := func(value string) ([]byte, bool) {
			key := counter.AppendPart(counter.AppendPart(counter.AppendPart(nil, "rule"), other), value)
			name, ok := s.Append(make([]byte, 0, 8192), key, 5)
			if _, short := s.Append(nil, key[:len(key)-len(value)], 5); short && value != "" {
				t.Errorf("a key that is cut off is like %+v", s)
			}
			return name, ok
		}
		nameA, okA := name(a)
		nameB, okB := name(b)
		network := func(value string) (p netip.Prefix) {
			address, _ := netip.AddrFromSlice([]byte(value))
			if text, err := netip.ParseAddr(value); textual && err == nil && (s.V6 || len(value) != 4) {
				address = text.Unmap().WithZone("")
			}
			if address.Is6() == s.V6 && address.Is4() != s.V6 {
				p, _ = address.Prefix(int(s.Bits))
			}
			return p
		}
		n := int(s.Bits / 8)
		var like, can bool
		switch s.Kind {
		case wire.ByPrefix:
			can, like = len(a) >= n && len(b) >= n, len(a) >= n && strings.HasPrefix(b, a[:n])
		case wire.BySuffix:
			can, like = len(a) >= n && len(b) >= n, len(a) >= n && strings.HasSuffix(b, a[len(a)-n:])
		default:
			for _, value := range []string{a, b} {
				if _, err := netip.ParseAddr(value); textual && err != nil && strings.ContainsAny(value, "%[]:.") {
					return // an address with a port, which is read elsewhere
				}
			}
			can, like = network(a).IsValid() && network(b).IsValid(), network(a) == network(b)
		}
		if okA && okB != can || can && bytes.Equal(nameA, nameB) != like {
			t.Errorf("%+v of %q and %q: %v %v, want %v; %x and %x, want the same %v", s, a, b, okA, okB, can, nameA, nameB, like)
		}
		key := counter.AppendPart(counter.AppendPart(counter.AppendPart(nil, "rule"), other), a)
		must.Equal(t, testing.AllocsPerRun(1, func() { s.Append(nameA[:0], key, 5) }), 0, "allocations")
	})
}
