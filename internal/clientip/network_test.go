package clientip

import (
	"net/netip"
	"strings"
	"testing"

	"weir/internal/must"
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
		must.Equal(t, string(Network(source, test.prefix4, test.prefix6, &memory)), want, "%+v", test)
		must.Equal(t, string(source), test.source, "%s was changed to %s", test.source, source)
	}
}

// A client is one, whatever its connection's port, and whatever name a proxy has for the link.
func TestConnectionsOfOneClient(t *testing.T) {
	for client, sources := range map[string][]string{
		"10.1.2.3":    {"10.1.2.3", "10.1.2.3:1", "10.1.2.3:65535", "[::ffff:10.1.2.3]:2", "::ffff:10.1.2.3", "[::ffff:10.1.2.3%2]:3"},
		"2001:db8::1": {"2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:1", "[2001:DB8:0::1]:65535"},
		"fe80::1": {
			"fe80::1", "[fe80::1]:1", "fe80::1%eth0", "[fe80::1%eth0]:1234", "[fe80::1%eth0]:1235", "[fe80::1%2]:1", "[fe80::1%25eth0]:1",
			"[fe80::1%eth0:1]:1", "fe80::1%eth0:1", "[fe80::1%a]b]:1",
		},
	} {
		want := string(netip.MustParseAddr(client).AsSlice())
		for _, source := range sources {
			var memory [16]byte
			must.Equal(t, string(Network([]byte(source), 32, 128, &memory)), want, "%s", source)
		}
	}
}

// An address and a port, as package net/netip takes them, are the network of the address alone.
func FuzzNetwork(f *testing.F) {
	for _, seed := range []string{"10.0.0.1:1", "[::1]:1", "[fe80::1%eth0]:1234", "[::ffff:10.0.0.1]:1", "[fe80::1%a:b]:1", "[fe80::1%]]:1", "@"} {
		f.Add(seed, 24, 56)
	}
	f.Fuzz(func(t *testing.T, source string, prefix4, prefix6 int) {
		prefix4, prefix6 = prefix4&31, prefix6&127
		var memory [16]byte
		got := Network([]byte(source), prefix4, prefix6, &memory)
		parsed, err := netip.ParseAddrPort(source)
		if err != nil {
			return
		}
		address := parsed.Addr().WithZone("").Unmap()
		prefix := prefix6
		if address.Is4() {
			prefix = prefix4
		}
		want := must.Get(address.Prefix(prefix))(t)
		must.Equal(t, string(got), string(want.Addr().AsSlice()), "%q", source)
	})
}

func TestNothingIsAllocated(t *testing.T) {
	var memory [16]byte
	source := []byte(strings.Repeat("1:", 7) + "1")
	must.Equal(t, testing.AllocsPerRun(100, func() { Network(source, 32, 64, &memory) }), 0, "allocations")
}

// Networks are written as package net/netip writes them, and other values stay as they are.
func TestText(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "10.0.0.7", "192.168.0.1", "255.255.255.255", "::", "::1", "1::", "1:0:2:3:4:5:6:7", "1:0:0:2::", "1:0:0:2:0:0:3:4", "1::2:0:0:0", "0:1:2:3:4:5:6:0", "2001:db8:1:2::",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::2:3:4:5:6:7:8", "1:2:3:4:5:6::", "", "@", "/run/a.sock", strings.Repeat("/run", 20),
	} {
		value, want := []byte(text), text
		if address, err := netip.ParseAddr(text); err == nil {
			value, want = address.AsSlice(), address.String()
		}
		var memory [MaxText]byte
		must.Equal(t, string(Text(value, &memory)), want, "the text of %s", text)
	}
}

// FuzzPrefix compares with net/netip.
func FuzzPrefix(f *testing.F) {
	for _, seed := range []string{
		"10.0.0.0/8", "0.0.0.0/0", "255.255.255.255/32", "10.1.2.3/8", "2001:db8::/32", "::/0", "::1/128",
		"1:2:3:4:5:6:7:8/128", "::ffff:10.0.0.0/104", "1:2:3:4:5:6:1.2.3.4/96", "1::8/64", "FE80::/10",
		"1:2:3:4:5:6:7::/112", "::2:3:4:5:6:7:8/9",
		"", "/", "/8", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/8/8",
		"10.0.0/8", "10.0.0.0.0/8", "010.0.0.0/8", "256.0.0.0/8", "1..2.3/8", "::/129", ":/8", ":::/8", "1::2::3/8",
		"12345::/8", "g::/8",
		"1:2:3:4:5:6:7/8", "1:2:3:4:5:6:7:8:9/8", "1:2:3:4:5:6:7::8/8", ":1::/8", "1:/8", "::1:/8",
		"fe80::1%eth0/64", "1.2.3.4::/8",
		"00001::/8", "1.2.3.4:1.2.3.4/8", "::1.2.3/8", "+1::/8",
	} {
		f.Add(seed, "10.1.2.3")
	}
	f.Add("::ffff:0:0/96", "10.0.0.1")
	f.Add("2001:db8::/33", "2001:db8:8000::1")
	f.Fuzz(func(t *testing.T, text, source string) {
		want, err := netip.ParsePrefix(text)
		got, ok := ParsePrefix(text)
		must.EqualOrEnd(t, ok, err == nil, "ParsePrefix(%q), netip says %v", text, err)
		address, err := netip.ParseAddr(source)
		if !ok || err != nil {
			return
		}
		if want.Addr().Is4In6() && want.Bits() >= 96 {
			want = netip.PrefixFrom(want.Addr().Unmap(), want.Bits()-96)
		}
		var memory [16]byte
		must.Equal(t, In([]byte(source), []Prefix{got}, &memory), want.Contains(address.WithZone("").Unmap()), "%s in %s", source, text)
	})
}
