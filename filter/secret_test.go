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
	passes := func(v *fakeVM, want int) {
		t.Helper()
		passed := 0
		for range 8 {
			if v.send("x-user", "ann") {
				passed++
			}
		}
		if passed != want {
			t.Errorf("%d of 8 requests passed, want %d of a limit of 5", passed, want)
		}
	}
	w.proxies = append(w.proxies, other)
	passes(w.vms[0], 5)
	passes(start(other, secret), 0)
	passes(start(other, ""), 5)
	passes(start(newProxy(t), ""), 0)
	passes(start(other, `"key_secret": "0123456789abcdeg"`), 5)
	w.advance(time.Second)
	passes(start(w.proxies[0], secret), 0)
	passes(w.vms[0], 0)
	if got := w.sum(); got != 15 {
		t.Errorf("the backend has %d hits, want 15", got)
	}
}

// Hits that a proxy has counted under another secret are pushed under that, and are no hits of the
// new secret.
func TestNewKeySecret(t *testing.T) {
	w := newWorld(t, 1, 1, synced("1", perUser))
	passes := func(v *fakeVM, want int) {
		t.Helper()
		passed := 0
		for range 60 {
			if v.send("x-user", "ann") {
				passed++
			}
		}
		if passed != want {
			t.Errorf("%d of 60 requests passed, want %d of a limit of 50", passed, want)
		}
	}
	passes(w.vms[0], 50)
	w.proxies[0].now = w.now
	v := w.proxies[0].start(strings.Replace(synced("1", perUser), `"cluster": "weir"`, `"cluster": "weir", "key_secret": "0123456789abcdef"`, 1))
	v.settle = w.deliver
	w.vms = append(w.vms, v)
	passes(v, 50)
	w.quiet()
	if got := w.sum(); got != 100 {
		t.Errorf("the backend has %d hits, want 100", got)
	}
}
