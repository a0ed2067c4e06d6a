package filter_test

import (
	"strings"
	"testing"
	"time"
)

// Proxies count together if they have the same secret, and by themselves if they don't. A
// configuration with a new secret begins anew, in the proxy too; one with the old one goes on.
func TestKeySecret(t *testing.T) {
	const secret = `"key_secret": "0123456789abcdef"`
	with := func(member string) string {
		if member != "" {
			member = ", " + member
		}
		return `{"backend": {"cluster": "weir"` + member + `}, "sync_rate": 0, "rules": [` + scarce + `]}`
	}
	w := newWorld(t, 1, 1, with(secret))
	other := newProxy(t)
	start := func(p *fakeProxy, member string) *fakeVM {
		p.now = w.now
		v := p.start(with(member))
		v.settle = w.deliver
		w.vms = append(w.vms, v)
		return v
	}
	w.proxies = append(w.proxies, other)
	w.vms[0].wantPassed(8, 5)
	start(other, secret).wantPassed(8, 0)
	start(other, "").wantPassed(8, 5)
	start(newProxy(t), "").wantPassed(8, 0)
	start(other, `"key_secret": "0123456789abcdeg"`).wantPassed(8, 5)
	w.advance(time.Second)
	start(w.proxies[0], secret).wantPassed(8, 0)
	w.vms[0].wantPassed(8, 0)
	w.wantSum(15, "afterwards")
}

// Hits that a proxy has counted under another secret are pushed under that, and are no hits of the
// new secret.
func TestNewKeySecret(t *testing.T) {
	w := newWorld(t, 1, 1, synced("1", perUser))
	w.vms[0].wantPassed(60, 50)
	w.proxies[0].now = w.now
	v := w.proxies[0].start(strings.Replace(synced("1", perUser), `"cluster": "weir"`, `"cluster": "weir", "key_secret": "0123456789abcdef"`, 1))
	v.settle = w.deliver
	w.vms = append(w.vms, v)
	v.wantPassed(60, 50)
	w.quiet()
	w.wantSum(100, "afterwards")
}
