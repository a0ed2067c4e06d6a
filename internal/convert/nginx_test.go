package convert_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/convert"
	"weir/internal/host"
	"weir/internal/must"
	"weir/internal/nightly"
)

// nginxHead begins a configuration of an nginx that keeps all its files in DIR.
const nginxHead = `
daemon off;
master_process off;
pid DIR/pid;
error_log DIR/error.log crit;
events {}
http {
    client_body_temp_path DIR/a; proxy_temp_path DIR/b; fastcgi_temp_path DIR/c; uwsgi_temp_path DIR/d; scgi_temp_path DIR/e;`

// compared is a configuration of nginx's whose decisions are compared. Zones of a request in a minute are
// decided in the same way however long the test takes.
const compared = nginxHead + `
    log_format compared '$msec|$remote_addr|$request_method|$host|$request_uri|$http_x_user|$status';
    access_log DIR/access.log compared;
    set_real_ip_from unix:;
    real_ip_header x-real-ip;

    geo $limited { default 1; 10.9.0.0/16 0; }
    map $limited $client { 0 ""; 1 $binary_remote_addr; }
    limit_req_zone $client zone=clients:1m rate=1r/m;
    limit_req_zone $client zone=clients-of-users:1m rate=1r/m;
    limit_req_zone $http_x_user zone=users:1m rate=1r/m;
    limit_req_zone $binary_remote_addr zone=free:1m rate=20r/s;
    limit_req_zone $binary_remote_addr zone=exact:1m rate=20r/s;
    limit_req_zone $binary_remote_addr zone=pictures:1m rate=20r/s;
    limit_req_zone $binary_remote_addr zone=admin:1m rate=20r/s;
    limit_req_zone $arg_token zone=tokens:1m rate=2r/m;
    limit_req_zone $cookie_sid$request_method zone=sessions:1m rate=1r/m;

    server {
        listen unix:DIR/socket;
        server_name shop.example;
        limit_req zone=clients burst=20 nodelay;

        location / { empty_gif; }
        location /users/ { limit_req zone=users burst=3 delay=3; limit_req zone=clients-of-users burst=15 nodelay; limit_req_status 429; empty_gif; }
        location /users/free/ { limit_req zone=free burst=1000 nodelay; empty_gif; }
        location = /users/exact { limit_req zone=exact burst=2 nodelay; empty_gif; }
        location ^~ /tokens/ { limit_req zone=tokens; limit_req_status 444; empty_gif; }
        location ~* \.(gif|PNG)$ { limit_req zone=pictures nodelay; empty_gif; }
        location ~ ^/sessions/[0-9]+/ { limit_req zone=sessions burst=4 nodelay; empty_gif; }
    }
    server {
        listen unix:DIR/socket;
        server_name admin.example *.admin.example;
        limit_req zone=admin burst=5 nodelay;
        limit_req_dry_run on;
        location / { empty_gif; }
    }
}
`

// logged is a request as nginx logs it.
type logged struct {
	at                             time.Time
	source, method, host, uri, who string
	status                         int
	headers                        map[string]string
}

// TestNginx sends the same requests through nginx and through what its configuration is converted to, and wants
// the same to pass. nginx's clock for limits is another one than its log's, so that where tokens come back
// while the test runs, either may be a request ahead.
func TestNginx(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := strings.ReplaceAll(compared, "DIR", dir)
	requests := ask(t, dir, text, nightly.Or(20_000, 1000))
	answers := decide(t, converted(t, "nginx", text, "set_real_ip_from"), requests) // the test sends the address
	type tally struct{ nginx, weir, refused int }
	tallies := map[string]*tally{}
	differ := 0
	for i, r := range requests {
		zone, of, quick := "clients", r.source, false
		path, query, _ := strings.Cut(r.uri, "?")
		switch {
		case r.host != "shop.example":
			zone, quick = "admin", true
		case strings.HasPrefix(path, "/tokens/"):
			zone, of = "tokens", query
		case path == "/users/exact" || strings.HasPrefix(path, "/users/free/") || strings.HasSuffix(strings.ToLower(path), ".gif"):
			zone, quick = path, true
		case strings.HasPrefix(path, "/users/"):
			zone, of = "users", ""
		case strings.HasPrefix(path, "/sessions/"):
			zone, of = "sessions", r.method
		}
		n := tallies[zone+" "+of]
		if n == nil {
			n = &tally{}
			tallies[zone+" "+of] = n
		}
		if r.status == http.StatusOK {
			n.nginx++
		} else {
			n.refused++
		}
		if answers[i] == http.StatusOK {
			n.weir++
		}
		switch {
		case r.status == answers[i]:
		case !quick:
			t.Errorf("request %d, %+v: nginx says %d, Weir %d", i, r, r.status, answers[i])
		default:
			if differ++; n.nginx-n.weir > 1 || n.weir-n.nginx > 1 {
				t.Errorf("request %d, %+v: nginx has let %d pass, Weir %d", i, r, n.nginx, n.weir)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	for _, zone := range []string{"users ", "tokens token=a", "sessions POST", "clients 10.0.0.1"} {
		if n := tallies[zone]; n == nil || n.nginx == 0 || n.refused == 0 {
			t.Errorf("%s: %+v, want requests that pass and such that do not", zone, n)
		}
	}
	t.Logf("%d requests, %d of them answered otherwise for a moment", len(requests), differ)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}

// startNginx starts an nginx that listens on a socket in a folder. It ends with the test, if not before.
func startNginx(t *testing.T, dir, text string) (socket string, p *commandtest.Process) {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path = "/usr/sbin/nginx"; !executable(path) {
			t.Fatal("no nginx: apt-get install nginx-light, or scripts/test-dependencies")
		}
	}
	file := must.File(t, filepath.Join(dir, "nginx.conf"), text)
	p = commandtest.Start(t, exec.Command(path, "-p", dir, "-c", file))
	socket = filepath.Join(dir, "socket")
	for deadline := time.Now().Add(30 * time.Second); ; {
		if conn, err := net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			return socket, p
		}
		if time.Now().After(deadline) {
			t.Fatalf("nginx does not listen: %s", p.Printed())
		}
	}
}

// ask sends random requests to an nginx, and returns what it has logged.
func ask(t *testing.T, dir, text string, n int) []logged {
	t.Helper()
	random := rand.New(rand.NewPCG(11, 30))
	of := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	return send(t, dir, text, n, func() logged {
		return logged{
			uri:    of("/", "/a", "/users/x", "/users/exact", "/users/free/y", "/users/z.GIF", "/tokens/?token=a", "/tokens/x.gif?b&token="+of("a", "b", ""), "/tokens/?token", "/sessions/12/", "/sessions/x/"),
			method: of("GET", "POST"), host: of("shop.example", "shop.example", "eu.admin.example"), source: of("10.0.0.1", "10.0.0.2", "10.9.0.1", "2001:db8::1"), who: of("ann", "ben", ""),
		}
	})
}

// send sends requests to an nginx, and returns what it has logged.
func send(t *testing.T, dir, text string, n int, next func() logged) (requests []logged) {
	t.Helper()
	socket, nginx := startNginx(t, dir, text)
	client := &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	for range n {
		of := next()
		r := must.Get(http.NewRequestWithContext(t.Context(), of.method, "http://"+of.host+of.uri, nil))(t)
		r.Header.Set("X-Real-Ip", of.source)
		if of.who != "" {
			r.Header.Set("X-User", of.who)
		}
		if response, err := client.Do(r); err == nil { // 444 closes the connection
			must.Get(io.Copy(io.Discard, response.Body))(t)
			_ = response.Body.Close()
		}
	}
	must.Report(t, nginx.End())
	log := must.Get(os.ReadFile(filepath.Join(dir, "access.log")))(t)
	for line := range strings.Lines(string(log)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		must.EqualOrEnd(t, len(fields), 7, "a line of nginx's log: %q", line)
		millis, err := strconv.ParseInt(strings.Replace(fields[0], ".", "", 1), 10, 64)
		status, e := strconv.Atoi(fields[6])
		must.OK(t, errors.Join(err, e))
		if status == http.StatusMethodNotAllowed {
			status = http.StatusOK // what answers knows no POST, and is asked once the limits have room
		}
		requests = append(requests, logged{time.UnixMilli(millis), fields[1], fields[2], fields[3], fields[4], strings.Trim(fields[5], "-"), status, nil})
	}
	if len(requests) < n {
		t.Fatalf("nginx has logged %d requests of %d", len(requests), n)
	}
	return requests
}

// decide has the compiled plugin answer requests by a configuration.
func decide(t *testing.T, configuration []byte, requests []logged) (answers []int) {
	t.Helper()
	now := requests[0].at
	_, root := started(t, configuration, host.VMConfig{}, func() int64 { return now.UnixNano() })
	for _, r := range requests {
		if r.at.After(now) {
			now = r.at
		}
		s := must.Get(root.NewStream(host.StreamInfo{Source: net.JoinHostPort(r.source, "4711")}))(t)
		h := host.NewHeaders(":method", r.method, ":path", r.uri, ":authority", r.host)
		if r.who != "" {
			h.Add("x-user", r.who)
		}
		for name, value := range r.headers {
			h.Add(name, value)
		}
		must.Get(s.RequestHeaders(h, true))(t)
		answer := http.StatusOK
		if reply := s.LocalReply(); reply != nil {
			answer = int(reply.Status)
		} else if _, err := s.ResponseHeaders(host.NewHeaders(":status", "200"), true); err != nil {
			t.Fatal(err)
		}
		s.Close()
		answers = append(answers, answer)
	}
	return answers
}

// started starts the compiled plugin with a configuration, in a proxy with a clock.
func started(t *testing.T, configuration []byte, c host.VMConfig, clock func() int64) (*host.VM, *host.Root) {
	t.Helper()
	c.ID = "weir"
	vm := must.Get(host.NewProcess(host.ProcessConfig{Clock: clock}).NewVM(t.Context(), plugin(t), c))(t)
	root := must.Get(vm.NewRoot(host.Plugin{Name: "weir", RootID: "weir", Configuration: configuration}))(t)
	return vm, root
}

// converted converts a file. What is lost has to have one of some parts.
func converted(t *testing.T, source, text string, lost ...string) (document []byte) {
	t.Helper()
	result := must.Get(convert.Convert(source, []convert.File{{Name: "file", Text: []byte(text)}}))(t)
	for _, l := range result.Lost {
		if !slices.ContainsFunc(lost, func(part string) bool { return strings.Contains(l.Problem, part) }) {
			t.Errorf("lost: %s", l)
		}
	}
	return result.Document
}

func plugin(t *testing.T) *host.Module {
	t.Helper()
	wasm, err := os.ReadFile("../../dist/weir.wasm")
	if err != nil {
		t.Fatalf("make build first: %v", err)
	}
	module := must.Get(host.Compile(t.Context(), wasm, host.Options{CacheDir: "../../dist/cache"}))(t)
	return module
}
