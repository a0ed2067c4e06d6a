package envoy_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/must"
)

func TestEnvoyYAMLRuns(t *testing.T) {
	t.Parallel()
	onEnvoy(t, func(t *testing.T, on envoytest.Binary) {
		around := surround(t)
		p := around.run(t, on, []byte(substitute(t, must.Text(t, "envoy.yaml"), map[string]string{
			"address: 127.0.0.1, port_value: 9901": "address: 127.0.0.1, port_value: 0",
			"address: 0.0.0.0, port_value: 10001":  "address: 127.0.0.1, port_value: 0",
			"address: 0.0.0.0, port_value: 10002":  "address: 127.0.0.1, port_value: 0",
			"/etc/envoy/weir.wasm":                 pluginFile(t),
			"address: weir, port_value: 9180":      socket(around.backend.address),
			"address: app, port_value: 8080":       socket(around.upstream),
			`"timeout": "200ms"`:                   `"timeout": "` + patience + `"`,
			"timeout: 200ms":                       "timeout: " + patience,
			"connect_timeout: 0.2s":                "connect_timeout: " + patience,
		})))
		limitsUsers(t, p)
		limitsAddresses(t, p)
		limitsLogins(t, p)
		sharesTotal(t, p)
		p.measures(t, "default")
		must.Same(t, p.backend.asked(), []string{"weir_backend"}, "callouts")
		for _, level := range []string{"[error]", "[critical]"} {
			must.Equal(t, strings.Contains(p.Log(), level), false, "the log has %s:\n%s", level, p.Log())
		}
	})
}

// socket returns an address in Envoy's fields.
func socket(address string) string {
	host, port, _ := strings.Cut(address, ":")
	return "address: " + host + ", port_value: " + port
}

// limitsUsers tests the decisions and headers of the listener users.
func limitsUsers(t *testing.T, p *proxy) {
	users := p.at(local, "users")
	refusal := bursts(t, 10, func(i int) (int, answer) { return users.untilRefused(t, "GET", "/cart", fmt.Sprint("x-user: ann", i)) })
	policy := `"per-user";q=10;w=1, "per-user.2";q=300;w=60, "total";q=60000;w=60`
	refusal.matches(t, map[string]string{
		"RateLimit-Policy":      policy,
		"RateLimit":             `"per-user";r=0;t=[12], "per-user.2";r=2[0-9]{2};t=[0-9]+, "total";r=[0-9]+;t=[0-9]+`,
		"X-RateLimit-Limit":     "10",
		"X-RateLimit-Remaining": "0",
		"X-RateLimit-Reset":     "1",
		"Retry-After":           "[12]",
		"X-Envoy-RateLimited":   "true",
		"Content-Type":          "application/problem\\+json",
		"Upstream-Saw":          "",
	})
	must.Equal(t, refusal.body, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":429,"violated-policies":["per-user"]}`, "body")
	other := users.send(t, "GET", "/cart", "x-user: bob")
	other.passes(t, "per-user", 9, "another user")
	other.matches(t, map[string]string{
		"RateLimit-Policy": policy, "X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "Retry-After": "", "X-Envoy-RateLimited": "",
		"Upstream-Saw": "GET /cart",
	})
	logged(t, p, `127\.0\.0\.1:[0-9]+ "GET /cart" 429 weir_rate_limited:per-user [0-9]+ms`)
	logged(t, p, `127\.0\.0\.1:[0-9]+ "GET /cart" 200 via_upstream [0-9]+ms`)
}

// logged waits for a line of the access log.
func logged(t *testing.T, p *proxy, pattern string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^[-0-9]{10}T[0-9:.]+Z ` + pattern + `$`)
	p.until(t, "a line of the access log like "+pattern, func() (bool, error) { return line.MatchString(p.Log()), nil })
}

// limitsAddresses tests the listener addresses: a client that asks too often can't escape by its
// headers.
func limitsAddresses(t *testing.T, p *proxy) {
	refusal := bursts(t, 20, func(i int) (int, answer) {
		return p.at(fmt.Sprint("127.0.1.", i), "addresses").untilRefused(t, "GET", "/", "x-forwarded-for: 127.0.0.3")
	})
	refusal.matches(t, map[string]string{
		"RateLimit-Policy":  `"per-address";q=20;w=1, "per-address.2";q=600;w=60, "total";q=60000;w=60`,
		"X-RateLimit-Limit": "20",
	})
	p.at("127.0.0.3", "addresses").send(t, "GET", "/").passes(t, "per-address", 19, "another address")
}

// limitsLogins tests that no other spelling of a path evades its rule.
func limitsLogins(t *testing.T, p *proxy) {
	one, other := p.at("127.0.0.4", "addresses"), p.at("127.0.0.5", "addresses")
	same := []string{
		"/login", "//login", "/%6cogin", "/%6Cogin", "/x/../login", "/x/%2e%2e/login", "/./login", "/\\login", "/login?x=1",
		"http://shop.example//login",
	}
	for i, target := range same[len(same)-5:] {
		a := one.send(t, "POST", target)
		a.passes(t, "login", 4-i, "POST %s", target)
		// The upstream gets the path that was matched.
		a.matches(t, map[string]string{"Upstream-Saw": `POST /login(\?x=1)?`})
	}
	for _, target := range same {
		a := one.send(t, "POST", target)
		a.refused(t, "POST %s after five", target)
		must.Equal(t, a.remaining("login"), 0, "POST %s after five", target)
	}
	logged(t, p, `127\.0\.0\.4:[0-9]+ "POST /login\?x=1" 429 weir_rate_limited:login [0-9]+ms`)
	for _, target := range []string{"/%2flogin", "/x%2f..%2flogin", "/%5Clogin"} {
		a := one.send(t, "POST", target)
		must.Equal(t, a.status, http.StatusTemporaryRedirect, "POST %s, want a redirect", target)
		a.matches(t, map[string]string{"Location": "/login", "Upstream-Saw": ""})
	}
	for _, target := range []string{"/login#x", "/login%00"} {
		must.Equal(t, one.send(t, "POST", target).status, http.StatusBadRequest, "POST %s, want it refused as malformed", target)
	}
	// These are other paths, and reach the upstream unchanged.
	for _, r := range [][2]string{{"POST", "/login/"}, {"POST", "/LOGIN"}, {"POST", "/%256cogin"}, {"GET", "/login"}} {
		a := one.send(t, r[0], r[1])
		a.passes(t, "login", -1, "%s %s", r[0], r[1])
		a.matches(t, map[string]string{"Upstream-Saw": r[0] + " " + r[1]})
	}
	other.send(t, "POST", "/login").passes(t, "login", 4, "another address")
}

// sharesTotal tests that both listeners count into the same rule, in the proxy and in the backend.
func sharesTotal(t *testing.T, p *proxy) {
	// A minute may end in between, but hardly three times.
	for range 3 {
		minute := time.Now().Truncate(time.Minute)
		first := p.at(local, "users").send(t, "GET", "/", "x-user: eve").remaining("total")
		second := p.at(local, "addresses").send(t, "GET", "/").remaining("total")
		inTime := func() bool { return time.Now().Truncate(time.Minute).Equal(minute) }
		if !inTime() {
			continue
		}
		must.Equal(t, second, first-1, "rule total: after %d in one listener, remaining in the other", first)
		must.AtLeast(t, first, 0, "rule total: remaining in one listener")
		// The backend also has leased hits that are not used yet.
		p.until(t, "the backend to have all hits of rule total", func() (bool, error) {
			counted, err := p.backend.counted("default", "fixed_window", time.Minute)
			return counted >= int64(60000-second) || !inTime(), err
		})
		if inTime() {
			return
		}
	}
	t.Error("rule total: every minute was over too soon")
}
