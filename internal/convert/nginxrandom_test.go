package convert_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/internal/convert"
	"weir/internal/must"
	"weir/internal/nightly"
)

// nginxWriter writes random configurations of nginx's: servers, locations inside each other, maps and geos.
type nginxWriter struct {
	*rand.Rand
	strings.Builder
}

func (w *nginxWriter) of(texts ...string) string { return texts[w.IntN(len(texts))] }

// one reports true once in n times.
func (w *nginxWriter) one(n int) bool { return w.IntN(n) == 0 }

const randomZones = 5

// limits writes limit_req for a block, or nothing.
func (w *nginxWriter) limits() {
	if w.one(24) {
		fmt.Fprint(w, w.of("limit_req_status 429; ", "limit_req_dry_run on; ", "limit_req_dry_run off; "))
	}
	if !w.one(2) {
		return
	}
	zones := w.Perm(randomZones)
	for _, zone := range zones[:1+w.IntN(2)] {
		burst := 1 + zone%2
		if w.one(20) {
			burst++
		}
		fmt.Fprintf(w, "limit_req zone=z%d burst=%d nodelay; ", zone, burst)
	}
}

// rewriting writes what nginx does to the requests of a block before it limits them.
func (w *nginxWriter) rewriting(often int, rewrites ...string) {
	if w.one(often) {
		fmt.Fprint(w, w.of(append(rewrites, "rewrite ^/a/ /b redirect; ", "rewrite ^/b$ /a permanent; ")...))
	}
	if w.one(often) {
		fmt.Fprint(w, w.of("", "", "", "break; ", "if ($http_x_user = ann) { break; } ", "if ($http_x_user = ben) { set $x 1; } "), "return 204; ")
	}
}

// locations writes locations, which are inside one whose path begins with begin, or inside a regular
// expression.
func (w *nginxWriter) locations(begin string, expressionsOnly bool, depth int) {
	used := map[string]bool{}
	for range w.IntN(5) {
		kind := w.of("", "", "", "= ", "^~ ", "~ ", "~* ")
		path := w.of("/", "/a", "/a/", "/a/b", "/b", "/ab", "/c/", "/a/b/c.php", "/a/é")
		if strings.HasPrefix(kind, "~") {
			path = w.of(`\.php$`, "^/a", "/b", "^/a/b/?", "b$", `\.(gif|php)$`, "^/[ab]$", "a|b", `^/\w+/b`, "[^a]$", "^/c(?:/a)+")
		} else if expressionsOnly || !strings.HasPrefix(path, begin) {
			continue
		}
		name := kind + path
		if name = strings.TrimPrefix(name, "^~ "); used[name] {
			continue
		}
		used[name] = true
		fmt.Fprintf(w, "location %s%s { ", kind, path)
		w.rewriting(8, "rewrite ^/a/b$ /none last; ", "rewrite b /a/none break; ")
		w.limits()
		if kind != "= " && depth > 0 && w.one(2) {
			if strings.HasPrefix(kind, "~") {
				w.locations("", true, depth-1)
			} else {
				w.locations(path, false, depth-1)
			}
		}
		fmt.Fprint(w, "empty_gif; }\n")
	}
}

// lines writes lines of a map or a geo, none of which has the same text as another.
func (w *nginxWriter) lines(n int, keys []string, value func() string) {
	keys = slices.Clone(keys)
	w.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys[:min(n, len(keys))] {
		fmt.Fprintf(w, "%s %s; ", key, value())
	}
}

// http writes the contents of http.
func (w *nginxWriter) http() {
	key := func() string { return w.of(`""`, `""`, "$binary_remote_addr", "$http_x_user", "u:$http_x_user", "one") }
	number := func() string { return w.of("0", "1", "2") }
	fmt.Fprint(w, "geo $network { ")
	w.lines(w.IntN(6), []string{"default", "10.0.0.0/8", "10.0.0.0/30", "10.0.0.1", "10.1.0.0/16", "2001:db8::/32", "2001:db8::1/128", "192.0.2.1"}, number)
	fmt.Fprint(w, "}\nmap $network $by_network { ")
	w.lines(w.IntN(4), []string{"default", "0", "1", "2", "~[12]"}, key)
	fmt.Fprint(w, "}\nmap $http_x_user $by_user { ")
	w.lines(w.IntN(5), []string{"default", "ann", "ben", `""`, "~^a", "~*B", "~n$", "~*^ANN", `\default`}, key)
	fmt.Fprint(w, "}\nmap $request_method $by_method { ")
	w.lines(w.IntN(4), []string{"default", "GET", "POST", "~^P", "delete"}, key)
	fmt.Fprint(w, "}\nmap $host $by_host { hostnames; ")
	w.lines(w.IntN(5), []string{"default", "a.example", "*.a.example", ".example", "x.*", "~^b"}, key)
	fmt.Fprint(w, "}\nmap $uri $by_path { ")
	w.lines(w.IntN(4), []string{"default", "/a", "/A/B", "~^/a", "~php$"}, key)
	fmt.Fprint(w, "}\nmap $http_x_user $class { ")
	w.lines(w.IntN(4), []string{"default", "ann", "~^b", "~*o"}, number)
	fmt.Fprint(w, "}\nmap $class $by_class { ")
	w.lines(w.IntN(4), []string{"default", "0", "1", "2"}, key)
	fmt.Fprint(w, "}\n")
	for zone := range randomZones {
		key := w.of("$binary_remote_addr", "$http_x_user", "$binary_remote_addr$http_x_user", "$by_network", "$by_user", "$by_method", "$by_host", "$by_path", "$by_class", "$server_name", "$host$by_network", "$by_method$by_user", "u:$http_x_user", "$server_name$http_x_user")
		fmt.Fprintf(w, "limit_req_zone %s zone=z%d:1m rate=1r/m;\n", key, zone)
	}
	w.limits()
	names := []string{"a.example", "*.a.example", "b.example", ".b.example", "~^x", "b.*", "~^(?:a|b)", "c.example"}
	w.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i := range 1 + w.IntN(3) {
		fmt.Fprintf(w, "\nserver { listen unix:DIR/socket; server_name %s %s;\n", names[2*i], w.of("", names[2*i+1]))
		w.rewriting(12, "rewrite ^/a/b$ /b last; ", "rewrite ^/c /a/b break; ", "rewrite php$ /ab; ", "if ($http_x_user = ben) { rewrite ^/b$ /a/b; } ")
		w.limits()
		w.locations("", false, 2)
		fmt.Fprint(w, "location = /none { empty_gif; }\nroot DIR/none; }\n")
	}
}

// TestNginxDecidesRandomFiles writes random configurations, and sends the same requests through nginx and
// through what each is converted to. Unless something is told as lost, the same requests pass.
func TestNginxDecidesRandomFiles(t *testing.T) {
	t.Parallel()
	n := nightly.Or(1000, 50)
	whole, refused := 0, 0
	for seed := range n {
		dir := t.TempDir()
		w := &nginxWriter{Rand: rand.New(rand.NewPCG(49, uint64(seed)))}
		w.http()
		text := strings.ReplaceAll(nginxHead+`
    log_format compared '$msec|$remote_addr|$request_method|$host|$request_uri|$http_x_user|$status';
    access_log DIR/access.log compared;
    set_real_ip_from unix:;
    real_ip_header x-real-ip;
`+w.String()+"}\n", "DIR", dir)
		result, err := convert.Convert("nginx", []convert.File{{Name: "nginx.conf", Text: []byte(text)}})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		lost := slices.DeleteFunc(result.Lost, func(l convert.Loss) bool { return strings.Contains(l.Problem, "set_real_ip_from") })
		if len(lost) > 0 || result.Document == nil {
			continue
		}
		whole++
		requests := send(t, dir, text, 150, func() logged {
			return logged{
				uri:    w.of("/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c.php", "/b", "/b.php", "/ab", "/A", "/A/b", "/a/b.gif", "/b/x.PHP", "/c/a/b", "/c/", "/none", "/aab", "/a/%C3%A9", "/a/%C3%A9/b"),
				method: w.of("GET", "GET", "POST", "DELETE", "PUT"), host: w.of("a.example", "x.a.example", "b.example", "y.b.example", "b.test", "other.example", "c.example"),
				source: w.of("10.0.0.1", "10.0.0.2", "10.1.0.9", "192.0.2.1", "2001:db8::1", "2001:db8::2"), who: w.of("", "", "ann", "ANN", "ben", "anna", "Bob"),
			}
		})
		for i, answer := range decide(t, result.Document, requests) {
			r := requests[i]
			passes := r.status != http.StatusTooManyRequests && r.status != http.StatusServiceUnavailable
			if !passes {
				refused++
			}
			must.EqualOrEnd(t, passes, answer == http.StatusOK, "file %d, request %d, %+v: nginx says %d, Weir %d\n%s\n%s", seed, i, r, r.status, answer, text, result.Document)
		}
	}
	t.Logf("%d of %d files are said in full, %d requests refused", whole, n, refused)
	if whole < n/6 || refused < 10*whole {
		t.Errorf("%d of %d files are said in full, and %d of their requests refused: want more", whole, n, refused)
	}
}
