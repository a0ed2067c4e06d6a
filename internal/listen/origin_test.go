package listen_test

import (
	"testing"

	"weir/internal/listen"
	"weir/internal/must"
)

// A known host of a request is an address, and not a name like an address.
func TestKnownHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"10.1.2.3:9181": true, "localhost": true, "LOCALHOST:80": true, "127.0.0.1:1": true, "127.9.9.9": true, "[::1]:9181": true, "[::1]": true,
		"": false, "10.1.2.3:1": false, "evil.test": false, "localhost.evil.test": false, "127.0.0.1.evil.test:9181": false, "evil.test:9181": false,
		"0.0.0.0:9181": false, "2130706433": false,
	} {
		must.Equal(t, listen.KnownHost(host, "10.1.2.3:9181"), want, "%q", host)
	}
}
