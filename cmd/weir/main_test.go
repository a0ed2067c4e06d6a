package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/redis/redistest"
	"weir/internal/trust/trusttest"
	"weir/internal/wire"
	"weir/window"
)

// asCommand makes the test's binary the command.
const asCommand = "WEIR_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	if options := os.Getenv(asProgram); options != "" {
		if err := limitUsers(options); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	one, two := must.File(t, filepath.Join(dir, "one"), "hunter2\n"), must.File(t, filepath.Join(dir, "two"), "hunter2\nhunter2\n")
	three := must.File(t, filepath.Join(dir, "three"), "hunter2 a token")
	alone := must.File(t, filepath.Join(dir, "alone"), `{"rules": [{"name": "all", "limits": [{"limit": 1, "window": "1s"}]}]}`)
	certificate, key := trusttest.New(t).Issue(t, "weir")
	busy := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer busy.Close()
	const plugin = "../../dist/weir.wasm"
	for _, test := range []lineTest{
		{"", 2, "", "Usage:"},
		{"help", 0, "Usage:", ""},
		{"--help", 0, "Usage:", ""},
		{"dance", 2, "", `unknown command "dance"`},
		{"chek", 2, "", "did you mean check?"},
		{"sim", 2, "", "did you mean simulate?"},
		{"help dance", 2, "", `unknown command "dance"`},
		{"help serve", 0, "Usage: weir serve [flags]", ""},
		{"--version", 0, "weir ", ""},
		{"version", 0, ", go1.", ""},
		{"version", 0, "formats: configuration 1; push 2, answer 4, report 4, usage 1; tables of a proxy's workers 2; stores: file 1, PostgreSQL 1, Redis 1\n", ""},
		{"serve --listn 127.0.0.1:0", 2, "", "did you mean --listen?"},
		{"serve --listen 127.0.0.1:0 hunter2", 2, "", "got an argument too many behind --listen and its value"},
		{"serve --insecure hunter2", 2, "", "got an argument too many behind --insecure"},
		{"serve --token=hunter2 more", 2, "", "got an argument too many behind --token"},
		{"serve --listen " + busy.Addr().String(), 1, "", "another program listens on " + busy.Addr().String() + ": end it, or choose another address with --listen"},
		{"serve --listen 203.0.113.1:1", 1, "", "is no address of this machine"},
		{"run --listen " + busy.Addr().String() + " --wasm " + plugin, 1, "", "proxy 0: another program listens on "},
		{"run --listen 127.0.0.1:0 --ui " + busy.Addr().String() + " --wasm " + plugin, 1, "", "or choose another address with --ui"},
		{"run --config " + dir, 1, "", "is a directory: want a file"},
		{"run --config " + one + "x", 1, "", "no such file"},
		{"run --wasm " + one + "x", 1, "", "no such file"},
		{"run", 1, "", "run that, or name it with --wasm"},
		{"run --config " + alone + " --store-file " + one, 2, "", "--store-file: want a configuration with a backend"},
		{"run --store redis://:hunter2@127.0.0.1:1", 1, "", "the store accepts no hits: redis: push: connect: connection refused\nIs it running"},
		{"run --store postgres://weir:hunter2@127.0.0.1:1/db", 1, "", "connection refused"},
		{"serve -h", 0, "-listen address", ""},
		{"serve --color", 2, "", "not defined: -color"},
		{"serve -h", 0, "-max-counters N", ""},
		{"serve --listen nowhere --max-counters 1", 1, "", "nowhere"},
		{"serve --max-counters 0", 2, "", "want 1 to 1073741824"},
		{"serve --max-counters many", 2, "", "want 1 to 1073741824"},
		{"serve --listen 127.0.0.1:0 --max-counters 5 --store redis://:hunter2@host", 2, "", "--max-counters: want it with --store memory or file:PATH only"},
		{"serve --listen 127.0.0.1:0 --max-counters 5 --store postgres://weir:hunter2@host/db", 2, "", "--max-counters: want it with --store memory or file:PATH only"},
		{"serve --listen 127.0.0.1:0 --store file:", 2, "", "--store: want a path after file:"},
		{"serve --listen 127.0.0.1:0 --store file://weir.db", 2, "", "--store: want a path after file:"},
		{"serve --listen 127.0.0.1:0 --store file:" + one, 1, "", "--store: file " + one + ": it is not a store of Weir"},
		{"serve --listen 127.0.0.1:0 --max-counters 5 --store file://" + dir + "/none/weir.db", 1, "", "file " + dir + "/none/weir.db: its directory does not exist: create it first"},
		{"run --max-counters 5", 2, "", "not defined: -max-counters"},
		{"serve hunter2", 2, "", "want flags only"},
		{"serve --listen nowhere", 1, "", "nowhere"},
		{"serve --listen 127.0.0.1:0 --store redis+cluster://:hunter2@host/3", 2, "", "want no database in the URL of a cluster"},
		{"serve --listen 127.0.0.1:0 --store postgres://weir:hunter2/@host", 2, "", "want postgres://"},
		{"serve --listen 127.0.0.1:0 --store mysql://weir:hunter2@host", 2, "", `got "mysql://…"`},
		{"serve --listen 127.0.0.1:0 --store hunter2", 2, "", "want memory, file:PATH, redis://…, redis+cluster://…, redis+sentinel://…, rediss… of these for TLS, or postgres://…"},
		{"serve --listen 127.0.0.1:0 --store redis://:hunter2/@host", 2, "", "want redis://"},
		{"serve --listen 127.0.0.1:0 --store redis://:hunter2@host --store-file " + one, 2, "", "--store: want either this or --store-file, not both"},
		{"serve --listen 127.0.0.1:0 --store-file " + one, 2, "", `--store-file: want memory, file:PATH, redis://…`},
		{"serve --listen 127.0.0.1:0 --store-file " + two, 2, "", "--store-file: want one line in "},
		{"serve --listen 127.0.0.1:0 --store-file " + one + "x", 1, "", "no such file"},
		{"serve --listen 127.0.0.1:0 --token hunter2 --token-file " + one, 2, "", "--token: want either this or --token-file, not both"},
		{"serve --listen 127.0.0.1:0 --token hunter2ü", 2, "", "--token: want 1 to 8192 visible ASCII characters"},
		{"serve --listen 127.0.0.1:0 --token-file " + three, 2, "", "line 1: want a token"},
		{"serve --listen 127.0.0.1:0 --token-file " + one + "x", 2, "", "no such file"},
		{"serve --listen 127.0.0.1:0 --tls-cert " + one, 2, "", "--tls-cert: want it with --tls-key"},
		{"serve --listen 127.0.0.1:0 --tls-client-ca " + one, 2, "", "--tls-cert: want it with --tls-key"},
		{"serve --listen 127.0.0.1:0 --tls-cert " + one + " --tls-key " + one, 2, "", "failed to find any PEM data"},
		// Outside of the loopback range, weir serve requires a token, certificates or --insecure.
		{"serve --listen 0.0.0.0:0", 2, "", "want --token-file, WEIR_TOKEN, or --tls-client-ca; or --insecure"},
		{"serve --listen :0", 2, "", "--listen: anyone who reaches "}, // [::]:, or 0.0.0.0: without IPv6
		{"serve --listen 0.0.0.0:0 --tls-cert " + certificate + " --tls-key " + key, 2, "", "want --token-file"},
		{"serve --listen 127.0.0.1:0 --ui 0.0.0.0:0", 2, "", "--ui: anyone who reaches "},
		{"serve --listen 127.0.0.1:0 --ui " + busy.Addr().String(), 1, "", "or choose another address with --ui"},
		// With these it goes on to the next error.
		{"serve --listen 0.0.0.0:0 --store hunter2 --insecure", 2, "", "--store: want memory"},
		{"serve --listen 0.0.0.0:0 --store hunter2 --token hunter2", 2, "", "--store: want memory"},
		{"serve --listen 0.0.0.0:0 --store hunter2 --token-file " + one, 2, "", "--store: want memory"},
		{"serve --listen 0.0.0.0:0 --store hunter2 --tls-cert " + certificate + " --tls-key " + key + " --tls-client-ca " + certificate, 2, "", "--store: want memory"},
		{"simulate -h", 0, "-field NAME=PART", ""},
		{"simulate a.log", 2, "", "want --config"},
		{"simulate --config " + one, 2, "", "want the names of access logs"},
		{"simulate --config " + one + " --format clf a.log", 2, "", `--format: want one of json, envoy, istio, alb, combined, vhost_combined, common, caddy, traefik, gcp, cloudfront, got "clf"`},
		{"simulate --config " + one + " --field user a.log", 2, "", "want NAME=PART such as user=header:x-user"},
		{"simulate --config " + one + " --json --html a.html a.log", 2, "", "want --json or --html, not both"},
		{"simulate --config " + one + " --keys -1 a.log", 2, "", "want numbers of 0 or more"},
		{"simulate --config " + one + "x a.log", 1, "", "no such file"},
		{"simulate --config example.json nowhere.log", 1, "", "nowhere.log: no such file"},
		{"simulate --config ../../go.mod nowhere.log", 1, "", "configuration refused"},
		{"serve --listen 127.0.0.1:0 --log-format xml", 2, "", `--log-format: want text or json, got "xml"`},
		{"serve --listen 127.0.0.1:0 --log-level loud", 2, "", "-log-level"},
		{"serve --listen 127.0.0.1:0 --shutdown-delay -1s", 2, "", "--shutdown-delay: want 0 or more"},
		{"serve --listen 127.0.0.1:0 --warn-webhook hunter2", 2, "", "--warn-webhook: want a URL such as"},
		{"serve --listen 127.0.0.1:0 --warn-webhook ftp://hunter2@host/", 2, "", "--warn-webhook: want a URL such as"},
		{"serve --listen 127.0.0.1:0 --warn-webhook-file " + two, 2, "", "--warn-webhook-file: want one line in "},
		{"serve --listen 127.0.0.1:0 --warn-webhook http://hunter2 --warn-webhook-file " + one, 2, "", "--warn-webhook: want either this or --warn-webhook-file, not both"},
		{"serve --listen 127.0.0.1:0 --descriptors " + dir, 2, "", "--descriptors, --descriptors-xds, --rate-limit-http: want them with --rate-limit-service"},
		{"serve --listen 127.0.0.1:0 --rate-limit-service 127.0.0.1:0", 2, "", "--rate-limit-service: want it with --descriptors or --descriptors-xds"},
		{"serve --listen 127.0.0.1:0 --rate-limit-service 127.0.0.1:0 --descriptors " + one, 1, "", one + ":1: want fields and their values"},
		{"serve --listen 127.0.0.1:0 --rate-limit-service 127.0.0.1:0 --descriptors " + one + "x", 1, "", "no such file"},
		{"serve --listen 127.0.0.1:0 --rate-limit-service " + busy.Addr().String() + " --descriptors " + dir, 1, "", "choose another address with --rate-limit-service"},
		{"ratelimit --port 8081", 2, "", "not defined: -port"},
		{"run --store-file " + two, 2, "", "--store-file: want one line"},
		{"controller", 2, "", "want --plugin"},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := execute(t.Context(), nil, "", strings.Fields(test.args)...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit code %d, want %d; stdout, want %q:\n%s\nstderr, want %q:\n%s", code, test.code, test.stdout, stdout, test.stderr, stderr)
			}
			if (test.stdout == "") != (stdout == "") || (test.stderr == "") != (stderr == "") {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
			must.Lacks(t, stderr, "hunter2", "stderr")
		})
	}
}

// The bound is passed to the store.
func TestMaxCounters(t *testing.T) {
	counters := must.Get(storeFlags{name: "memory", maxCounters: 2}.open(nil))(t)
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1, Takes: []wire.Take{{Least: 1, Most: 1}}}
	for id := range byte(3) {
		p.Takes[0].Rooms = append(p.Takes[0].Rooms, wire.Room{Limit: 5, Cost: 1, LimitCounter: wire.LimitCounter{
			ID: wire.ID{id}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000,
		}})
	}
	must.Get(counters.Push(t.Context(), p, 1))(t)
	must.Equal(t, counters.Store.(*memory.Store).Size().Counters, 2, "counters")
	must.Report(t, counters.Close())
}

// startProcess starts a command that runs this test's binary as weir, until the test ends.
func startProcess(t *testing.T, command *exec.Cmd) *commandtest.Process {
	t.Helper()
	// The tests may collect less often than a program that users start: see the Makefile.
	command.Env = append(append(os.Environ(), asCommand+"=1", "GOGC="), command.Env...)
	return commandtest.Start(t, command)
}

// serveProcess starts weir serve as a process, on a free port unless the arguments have another address.
func serveProcess(t *testing.T, args, environment []string) *commandtest.Process {
	t.Helper()
	command := exec.Command(os.Args[0], append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	command.Env = environment
	return startProcess(t, command)
}

// startServe is serveProcess, and waits for the address.
func startServe(t *testing.T, args, environment []string) (address string, p *commandtest.Process) {
	t.Helper()
	p = serveProcess(t, args, environment)
	return p.Wait(t, `address=(\S+)`), p
}

// TestServeProcess runs weir serve as a process, and ends it like an operator does.
func TestServeProcess(t *testing.T) {
	for store, signal := range map[string]os.Signal{"memory": syscall.SIGTERM, redistest.Start(t, "--requirepass", "hunter2").URL(): os.Interrupt} {
		t.Run(store, func(t *testing.T) {
			url := strings.Replace(store, "redis://", "redis://:hunter2@", 1)
			address, p := startServe(t, []string{"--store", url}, []string{"WEIR_TOKEN=s3cret"})
			push := wire.AppendPush(nil, &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1, Items: []wire.Item{
				{LimitCounter: wire.LimitCounter{Kind: uint8(window.FirstHitWindow), WidthMillis: 1000}, Hits: []int64{0}},
			}})
			wantStatus(t, "GET", "http://"+address+"/healthz", "", nil, 200, "ok\n")
			wantStatus(t, "GET", "http://"+address+"/metrics", "", nil, 200, "\ngo_goroutines ", "\nprocess_open_fds ")
			wantStatus(t, "POST", "http://"+address+wire.PushPath, "s3cret", push, 200)
			wantStatus(t, "POST", "http://"+address+wire.PushPath, "", push, 401, "bearer token")

			must.Reportf(t, p.EndBy(signal), "%s", p.Printed())
			for _, secret := range []string{"s3cret", "hunter2"} {
				must.Lacks(t, p.Printed(), secret, "log")
			}
		})
	}
}

// The log of weir serve has a line when its store fails and a line when it is back, however many
// pushes come meanwhile.
func TestServeLog(t *testing.T) {
	redis := redistest.Start(t)
	address, p := startServe(t, []string{"--store", redis.URL()}, nil)
	sequence := uint64(0)
	push := func() (status int) {
		sequence++
		status, _ = ask(t, "POST", "http://"+address+wire.PushPath, "", wire.AppendPush(nil, &wire.Push{
			Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Items: []wire.Item{
				{LimitCounter: wire.LimitCounter{Kind: uint8(window.FirstHitWindow), WidthMillis: 1000}, Hits: []int64{1}},
			}}))
		return status
	}
	redis.Stop()
	for range 5 {
		must.Equal(t, push(), http.StatusServiceUnavailable, "status while the store is away")
	}
	redis.Restart()
	for _, want := range []string{"the store fails", "the store is back"} {
		// The log says that the store is back after it has not failed for a while.
		for !strings.Contains(p.Printed(), want) {
			push()
		}
	}
	must.Reportf(t, p.End(), "%s", p.Printed())
	lines := strings.Split(strings.TrimSpace(p.Printed()), "\n")
	must.EqualOrEnd(t, len(lines), 5, "%s: lines", p.Printed())
	for i, want := range []string{"the counter backend listens", "the store fails", "the store is back",
		`msg="the counter backend ends" requests_under_way=`, `msg="the counter backend has ended" requests_drained=0 requests_cut_off=0`} {
		must.Contains(t, lines[i], want, "line %d", i)
	}
}

func ask(t *testing.T, method, url, token string, body []byte, headers ...string) (int, string) {
	t.Helper()
	return askWith(t, envoytest.Client, method, url, token, body, headers...)
}

// wantStatus asks, wants the answer to have a status and to hold texts, and returns it.
func wantStatus(t *testing.T, method, url, token string, body []byte, status int, texts ...string) string {
	t.Helper()
	got, answer := ask(t, method, url, token, body)
	must.EqualOrEnd(t, got, status, "%s %s: status: %s", method, url, answer)
	for _, text := range texts {
		must.Contains(t, answer, text, "%s %s", method, url)
	}
	return answer
}

// askWith asks with headers, names and values in turn, or with the type of a push alone.
func askWith(t *testing.T, client *http.Client, method, url, token string, body []byte, headers ...string) (int, string) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, bytes.NewReader(body)))(t)
	if headers == nil {
		headers = []string{"Content-Type", wire.ContentType}
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	r.Host = r.Header.Get("Host") // none is that of the URL
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer := must.Get(client.Do(r))(t)
	defer answer.Body.Close()
	return answer.StatusCode, string(must.Get(io.ReadAll(answer.Body))(t))
}

// The secrets of a process come from its environment or from files: the store's URL with its
// password, and tokens, which are read again when they change. It serves TLS to clients with a
// certificate.
func TestServeSecrets(t *testing.T) {
	authority := trusttest.New(t)
	certificate, key := authority.Issue(t, "weir")
	redisURL := strings.Replace(redistest.Start(t, "--requirepass", "hunter2").URL(), "redis://", "redis://:hunter2@", 1)
	_, write := files(t)
	push := func(namespace string) []byte {
		return wire.AppendPush(nil, &wire.Push{Namespace: namespace, Sender: 1, Sequence: 1, Floor: 1, Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{{
			LimitCounter: wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: 60_000}, Limit: 5, Cost: 1,
		}}}}})
	}
	for name, test := range map[string]struct {
		args        []string
		environment []string
		shop, api   int
		tls         bool
	}{
		"environment": {nil, []string{"WEIR_STORE=" + redisURL, "WEIR_TOKEN=s3cret"}, 200, 200, false},
		"files": {[]string{"--store-file", write("store", redisURL+"\n"), "--token-file", write("tokens", "shop s3cret\napi other\n")},
			[]string{"WEIR_STORE=mysql://not-this", "WEIR_TOKEN=nor-this"}, 200, 403, false},
		"certificates": {[]string{"--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authority.File}, []string{"WEIR_STORE=" + redisURL}, 200, 200, true},
	} {
		t.Run(name, func(t *testing.T) {
			address, p := startServe(t, append([]string{"--listen", "0.0.0.0:0"}, test.args...), test.environment)
			_, port, err := net.SplitHostPort(address)
			must.OK(t, err)
			url, client := "http://127.0.0.1:"+port, &http.Client{}
			if test.tls {
				pair := must.Get(tls.LoadX509KeyPair(certificate, key))(t)
				transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool, Certificates: []tls.Certificate{pair}}}
				t.Cleanup(transport.CloseIdleConnections)
				url, client = "https://127.0.0.1:"+port, &http.Client{Transport: transport}
				probe := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool}}
				t.Cleanup(probe.CloseIdleConnections)
				got, body := askWith(t, &http.Client{Transport: probe}, "GET", url+"/readyz", "", nil)
				must.Equal(t, got, 200, "a probe without a certificate: status, with %s", body)
			}
			for namespace, status := range map[string]int{"shop": test.shop, "api": test.api} {
				got, body := askWith(t, client, "POST", url+wire.PushPath, "s3cret", push(namespace))
				must.Equal(t, got, status, "%s: status, with %s", namespace, body)
			}
			for _, secret := range []string{"s3cret", "hunter2"} {
				must.Lacks(t, p.Printed(), secret, "log")
			}
		})
	}
}

// A metric shows whether the store's Redis evicts.
func TestServeOnARedisThatEvicts(t *testing.T) {
	address, _ := startServe(t, []string{"--store", redistest.Start(t, "--maxmemory-policy", "allkeys-lru").URL()}, nil)
	for metrics := ""; !strings.Contains(metrics, "\nweir_store_evicts 1\n"); {
		if _, metrics = ask(t, "GET", "http://"+address+"/metrics", "", nil); strings.Contains(metrics, "\nweir_store_evicts 0\n") {
			t.Fatal(metrics)
		}
	}
}

// execute runs a command in this process, with variables and a text as its standard input.
func execute(ctx context.Context, set map[string]string, stdin string, args ...string) (code int, stdout, stderr string) {
	var out bytes.Buffer
	var errs commandtest.Output // a backend may log while the command ends
	code = run(ctx, args, environment{
		stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, getenv: func(name string) string { return set[name] },
	})
	return code, out.String(), errs.String()
}

// said executes a command with variables, and returns its exit code and all that it printed.
func said(t *testing.T, set map[string]string, args ...string) string {
	code, stdout, stderr := execute(t.Context(), set, "", args...)
	return fmt.Sprintf("%d %s%s", code, stdout, stderr)
}

// serveHere serves a store in this process until the test ends, and returns its URL.
func serveHere(t *testing.T, in store.Store, o server.Options) (url string) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	s := httptest.NewServer(server.Handler(in, o))
	t.Cleanup(s.Close)
	return s.URL
}

// lineTest is a command line with its exit code, and parts of what it prints. What follows <<< is its
// standard input.
type lineTest struct {
	args           string
	code           int
	stdout, stderr string
}

// executeAll executes command lines in turn, with variables.
func executeAll(t *testing.T, set map[string]string, lines []lineTest) {
	t.Helper()
	for _, want := range lines {
		args, stdin, _ := strings.Cut(want.args, " <<< ")
		code, stdout, stderr := execute(t.Context(), set, stdin, strings.Fields(args)...)
		if code != want.code || !strings.Contains(stdout, want.stdout) || !strings.Contains(stderr, want.stderr) {
			t.Errorf("weir %s: exit %d, want %d\n%s%s\nwant\n%s%s", want.args, code, want.code, stdout, stderr, want.stdout, want.stderr)
		}
		must.Lacks(t, stdout+stderr, "\x1b", "weir %s", want.args)
	}
}
