package clientip

import (
	"net/netip"
	"strings"
	"testing"
)

func TestNetwork(t *testing.T) {
	for _, test := range []struct {
		source           string
		prefix4, prefix6 int
		want             string // an address, or what counts as it stands
	}{
		{"10.1.2.3:1234", 32, 64, "10.1.2.3"},
		{"10.1.2.3", 32, 64, "10.1.2.3"},
		{"10.1.2.3:1234", 24, 64, "10.1.2.0"},
		{"10.1.255.3:1234", 20, 64, "10.1.240.0"},
		{"10.1.2.3:1234", 0, 64, "0.0.0.0"},
		{"[2001:db8:1:2:3::4]:1234", 32, 64, "2001:db8:1:2::"},
		{"[2001:db8:1:2:3::4]", 32, 128, "2001:db8:1:2:3::4"},
		{"2001:db8:1:2:3::4", 32, 33, "2001:db8::"},
		{"[::ffff:10.1.2.3]:1234", 16, 64, "10.1.0.0"},
		{"[fe80::1%eth0]:1234", 32, 64, "fe80::"},
		{"/run/a%20b:1", 32, 64, "/run/a%20b:1"},
		{"/run/a.sock", 0, 0, "/run/a.sock"},
		{"@", 0, 0, "@"},
		{"[", 0, 0, "["},
		{":", 0, 0, ":"},
		{"", 0, 0, ""},
	} {
		want := test.want
		if address, err := netip.ParseAddr(want); err == nil {
			want = string(address.AsSlice())
		}
		var memory [16]byte
		source := []byte(test.source)
		if got := Network(source, test.prefix4, test.prefix6, &memory); string(got) != want {
			t.Errorf("%+v: got %x", test, got)
		}
		if string(source) != test.source {
			t.Errorf("%s was changed to %s", test.source, source)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	var memory [16]byte
	source := []byte(strings.Repeat("1:", 7) + "1")
	if n := testing.AllocsPerRun(100, func() { Network(source, 32, 64, &memory) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
