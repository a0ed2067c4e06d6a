package clientip

import (
	"net/netip"
	"testing"
)

// Addresses are read as package net/netip reads them.
func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{
		"10.0.0.1", "255.255.255.255", "256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1..2.3", "0.0.0.0", "", ".", "::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7",
		"1:2:3:4:5:6:7:8:9", "::ffff:10.0.0.1", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3.4", "1::2::3", "1:::2", ":1", "1:", "2001:DB8::a", "12345::", "g::", "::1.2.3",
		"1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3::4:5:6:7:8", "64:ff9b::1.2.3.4", "::ffff:0:0", "fe80::1%eth0",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, err := netip.ParseAddr(text)
		valid := err == nil && want.Zone() == ""
		var got [16]byte
		v4, ok := parseAddress([]byte(text), &got)
		want = want.Unmap()
		switch {
		case ok != valid:
			t.Errorf("%q: read %v, want %v", text, ok, valid)
		case ok && v4 != want.Is4():
			t.Errorf("%q: IPv4 %v, want %v", text, v4, want.Is4())
		case ok && v4 && [4]byte(got[12:]) != want.As4(), ok && !v4 && got != want.As16():
			t.Errorf("%q: %x, want %v", text, got, want)
		}
	})
}
