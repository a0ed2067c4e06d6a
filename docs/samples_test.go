package docs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/store/redis/redistest"
)

// This file types all that pages have somebody type, page by page, in the order of the page.

// notRun are the samples of a shell that no test runs, by their beginning, with the reason.
var notRun = map[string]string{
	"weir usage default dollars --push": "there is no such service",
	"$ make build":                      "the suite has built it",
	"make build native && ":             "a benchmark",
	"make build         #":              "a list of make's targets, which make test runs",
	"make native":                       "needs two minutes of a processor; TestNativeRuns runs the file by night",
	"$ python3 -m venv":                 "scripts/test-dependencies installs the same package",
	"python3 -m venv dist/try && ":      "scripts/test-dependencies installs the same package, and TestEnvoyYAMLRuns has the file",
	"WEIR_TOKEN=change-me dist/weir":    "TestEnvoyYAMLRuns runs the file, with free ports",
	"curl -i -H 'x-user: ann' http":     "TestEnvoyYAMLRuns asks the same",
	"docker ":                           "needs Docker",
	"kubectl ":                          "needs Kubernetes",
	"$ curl -fsSLO 'https://files":      "TestInstall types it in an empty folder",
	"$ for i in 1 2 3 4 5 6 7 8 9 10 11 12; do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:10000/; done; echo\n503": "as above",
	"install -m 755 weir":             "TestUnit types it in a folder, but for systemctl",
	"go test -run":                    "a benchmark",
	"dist/weir serve\ndist/weir run ": "TestTokensRuns runs the file",
	"curl -iN -H 'authorization: Bearer ann' -H 'content-type": "TestTokensRuns asks the same",
}

// shellBegins is how a sample for a shell begins.
var shellBegins = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:make|weir|dist/\S+|curl|python3|envoy|for|sed|docker|kubectl|git|go|node|ls|install|cp) `)

// indented is a block of code that is no list's.
var indented = regexp.MustCompile(`(?m)(?:^    .*\n)+`)

// blocks are a page's blocks of code, in their order.
func blocks(text string) (all []string) {
	type found struct {
		at   int
		text string
	}
	var unordered []found
	for _, m := range fenced.FindAllStringSubmatchIndex(text, -1) {
		unordered = append(unordered, found{m[0], text[m[4]:m[5]]})
	}
	blank := fenced.ReplaceAllStringFunc(text, func(block string) string { return strings.Repeat("x", len(block)-1) + "\n" })
	for _, m := range indented.FindAllStringIndex(blank, -1) {
		unordered = append(unordered, found{m[0], regexp.MustCompile(`(?m)^    `).ReplaceAllString(text[m[0]:m[1]], "")})
	}
	slices.SortFunc(unordered, func(a, b found) int { return a.at - b.at })
	for _, f := range unordered {
		all = append(all, f.text)
	}
	return all
}

// shellSamples are a page's samples for a shell.
func shellSamples(text string) []string {
	return slices.DeleteFunc(blocks(text), func(block string) bool { return !shellBegins.MatchString(block) })
}

// TestShellSamples runs what pages have one type, and wants it to print what they say. Servers get free
// ports, and what comes after them asks there.
func TestShellSamples(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return // make test-fast
	}
	ran, known := 0, map[string]bool{}
	for _, page := range pages(t) {
		if page == "commands.md" {
			continue // --help prints it
		}
		if page == "cookbook.md" || page == "library.md" {
			continue // tests of their own type them
		}
		var samples []string
		for _, sample := range shellSamples(must.Text(t, page)) {
			excused := ""
			for begins := range notRun {
				if strings.HasPrefix(sample, begins) && len(begins) > len(excused) {
					excused = begins
				}
			}
			if known[excused] = true; excused == "" {
				samples = append(samples, sample)
			}
		}
		if len(samples) == 0 {
			continue
		}
		ran += len(samples)
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			if page := filepath.Base(page); running[page] != "" {
				s.start(t, running[page])
				s.command(t, s.replace.Replace("for i in 0 1; do curl -sf -o /dev/null -H 'x-user: ann' localhost:808$i; done"), nil)
			}
			for _, sample := range samples {
				s.sample(t, sample)
			}
		})
	}
	for begins, reason := range notRun {
		must.Equal(t, known[begins], true, "a page has a sample that begins with %q, which is not run: %s", begins, reason)
	}
	must.AtLeast(t, ran, 12, "samples found to run")
}

// hostile is what some recipes' Go is asked besides, once the page's samples have used up limits: names that only ignoring case
// makes others, and batches.
var hostile = map[string]string{
	"GraphQL, by what the body asks for": `$ curl -s -o /dev/null -w '%{http_code} ' -H 'x-user: ann' -d '{"operationName": "orders", "OPERATIONNAME": "x"}' http://127.0.0.1:8081/graphql
429`,
	"Tools of agents: MCP and JSON-RPC": `$ curl -s -H 'x-agent: a1' -d '{"id": 3, "method": "tools/call", "METHOD": "ping", "params": {"name": "search", "Name": "x"}}' http://127.0.0.1:8081/mcp | grep -o '"id":.*'
"id":3}
$ curl -s -H 'x-agent: a2' -d "[$(printf '{"id": 4},%.0s' $(seq 20)){}]" http://127.0.0.1:8081/mcp | grep -o '"id":.*'
"id":null}`,
}

var exampleRun = regexp.MustCompile(`weir run --config (examples/[a-z-]+\.[a-z]+)`)

// TestCookbook types each recipe, with a server of its own, and wants the answers that the page has. The
// recipe shows the file that it runs, and that has a backend. Sections without samples are excused by their
// headings. Where the recipe has Go, a program of it takes the place of the second proxy, and all answers are
// the same: the program and the first proxy keep to one limit.
func TestCookbook(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return // make test-fast
	}
	// The second is notRun's Docker.
	elsewhere := []string{"Put a recipe into your proxy", "Compose"}
	recipes := strings.Split(must.Text(t, "cookbook.md"), "\n## ")[1:]
	must.AtLeast(t, len(recipes), 15, "recipes")
	programs := goSamples(must.Text(t, "cookbook.md"))
	file := program(t, programs)
	must.AtLeast(t, len(programs), 11, "recipes that have Go")
	for _, recipe := range recipes {
		title, text, _ := strings.Cut(recipe, "\n")
		if slices.Contains(elsewhere, title) {
			continue
		}
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			samples := shellSamples(text)
			if len(samples) == 0 || !strings.Contains(text, "curl") {
				t.Fatal("there is nothing to type")
			}
			for _, run := range exampleRun.FindAllStringSubmatch(text, -1) {
				file := must.Text(t, filepath.Join("..", run[1]))
				must.Contains(t, text, "\n"+file+"```\n", "the recipe does not show %s as it is", run[1])
				if !regexp.MustCompile(`"?backend"?: \{"?cluster`).MatchString(file) {
					t.Errorf("%s has no backend: its limits are each proxy's own", run[1])
				}
			}
			t.Run("proxies", func(t *testing.T) {
				s := newShell(t)
				for _, sample := range samples {
					s.sample(t, strings.ReplaceAll(sample, "weir run ", "weir run --ui none --listen 127.0.0.1:8080 "))
				}
			})
			for _, sample := range goSamples(text) {
				t.Run("Go", func(t *testing.T) {
					s, run := newShell(t), file+" "+strconv.Itoa(slices.Index(programs, sample))
					first, rest, _ := strings.Cut(samples[0], "\n")
					s.start(t, strings.TrimPrefix(first, "$ "))
					switch {
					case strings.Contains(sample, "\nlimit :="), strings.Contains(sample, "\nhandler :="):
						s.serve(t, s.replace.Replace(run+" 127.0.0.1:10000"), s.ready["-c quickstart.yaml"])
						s.sample(t, strings.ReplaceAll(rest+"\n"+hostile[title], "8081", "10000"))
					case strings.Contains(sample, "\nserver :="):
						s.sample(t, rest)
						s.command(t, run, []string{"ann ResourceExhausted", "bob OK"})
					default:
						s.command(t, run, nil)
					}
				})
			}
		})
	}
}

// TestLibrary makes the programs of the library's page, beside a clone, and runs them as the page does.
func TestLibrary(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return // make test-fast
	}
	s := newShell(t)
	root := must.Get(filepath.Abs(".."))(t)
	must.OK(t, os.Symlink(root, filepath.Join(s.dir, "weir")))
	s.dir = filepath.Join(s.dir, "shop")
	must.OK(t, os.Mkdir(s.dir, 0o700))
	s.env = append(s.env, "GOWORK=off")
	s.ready["./server"] = s.ready["weir run"]
	write := func(name, text string) {
		must.OK(t, os.WriteFile(filepath.Join(s.dir, name), []byte(s.replace.Replace(text)), 0o600))
	}
	const typed = "go run -mod=mod ."
	ran, serves := 0, false
	for _, block := range blocks(must.Text(t, "library.md")) {
		switch {
		case strings.HasPrefix(block, "module "):
			write("go.mod", block)
		case strings.HasPrefix(block, "package main\n"):
			write("main.go", block)
			serves = strings.Contains(block, "ListenAndServe")
		case shellBegins.MatchString(block):
			ran += strings.Count(block, typed)
			run := "go build -mod=mod -o program . && ./program"
			if serves {
				s.command(t, "go build -mod=mod -o server .", nil)
				run = "./server"
			}
			s.sample(t, strings.ReplaceAll(block, typed, run))
		}
	}
	must.Equal(t, ran, 3, "programs ran")
}

// shell is a terminal in a folder that is like the repository's.
type shell struct {
	dir     string
	replace *strings.Replacer
	env     []string
	ready   map[string]string // the address that a server listens on, by a part of its command
}

// shopConfiguration is of what the pages ask about.
const shopConfiguration = `{"namespace": "shop", "backend": {"cluster": "weir_backend"}, "sync_rate": 0.1, "rules": [
	{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 100, "window": "1m"}, {"limit": 1000, "window": "1h"}]},
	{"name": "new-limit", "mode": "shadow", "key": [{"header": "x-user"}], "limits": [{"limit": 10, "window": "1m"}]}]}`

// accessLog has a line of the combined format, and a field more.
const accessLog = `127.0.0.1 - ann [22/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 2 "-" "curl" 7
`

// running are the servers that a page's text takes for granted.
var running = map[string]string{
	"backend.md": "weir run --config weir.json", "counters.md": "weir run --config weir.json",
	"tokens.md": "weir run --config examples/tokens.json",
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{dir: t.TempDir(), ready: map[string]string{}}
	root := must.Get(filepath.Abs(".."))(t)
	envoy := must.Get(envoytest.Newest())(t)
	ports := map[string]string{}
	for of, these := range map[int][]string{freePorts(t): {"8080", "8081", "9180", "9181", "3000"}, freePorts(t): {"10000", "10001"}} {
		for i, port := range these {
			ports[port] = strconv.Itoa(of + i)
		}
		ports[these[0][:len(these[0])-1]+"$i"] = strconv.Itoa(of/10) + "$i"
	}
	var replacements []string
	for _, port := range slices.SortedFunc(maps.Keys(ports), func(a, b string) int { return len(b) - len(a) }) {
		replacements = append(replacements, port, ports[port])
	}
	replacements = append(replacements,
		"$ make run\n", "$ dist/weir run --listen 127.0.0.1:"+ports["8080"]+" --ui 127.0.0.1:"+ports["9181"]+"\n",
		"redis://redis:6379", redistest.Start(t).URL(), "0.0.0.0", "127.0.0.1",
		// The time by which an override ends is to come.
		"2026-12-01", time.Now().AddDate(0, 0, 7).Format(time.DateOnly),
		"git grep", "git -C "+root+" grep",
		" --follow", " --keys 3") // it goes on for ever
	s.replace = strings.NewReplacer(replacements...)
	for link, to := range map[string]string{
		"dist/weir": "dist/weir", "dist/weir.wasm": "dist/weir.wasm", "bin/weir": "dist/weir", "docs": "docs", "cmd": "cmd", "internal": "internal",
		"examples": "examples", "bin/envoy": "", "dist/try/bin/envoy": "",
	} {
		if to = filepath.Join(root, to); strings.HasSuffix(link, "envoy") {
			to = envoy.Path
		}
		must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(s.dir, link)), 0o700))
		must.OK(t, os.Symlink(to, filepath.Join(s.dir, link)))
	}
	for name, text := range map[string]string{
		"envoy/quickstart.yaml": s.replace.Replace(must.Text(t, "../envoy/quickstart.yaml")), "weir.json": shopConfiguration,
		"new.json":   `{"rules": [{"name": "per-client", "key": ["client_ip"], "limits": [{"limit": 10, "window": "1m"}]}]}`,
		"access.log": strings.Repeat(accessLog, 20), "access.log.1.gz": strings.Repeat(accessLog, 20), "tokens": "0123456789abcdef\n",
		"nginx.conf":       fenced.FindStringSubmatch(must.Text(t, "convert.md"))[2],
		"limits.yaml":      "domain: shop\ndescriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 100}}]\n",
		"envoy.yaml":       "virtual_hosts: [{name: shop, domains: ['*'], rate_limits: [{actions: [{remote_address: {}}]}]}]\n",
		"limits/shop.yaml": inPage(t, "rate-limit-service.md", "domain: shop\n"), "limits/tokens.yaml": inPage(t, "rate-limit-service.md", "domain: tokens\n"),
	} {
		name = filepath.Join(s.dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	}
	s.env = append(os.Environ(), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"), "WEIR_BACKEND=http://127.0.0.1:"+ports["9180"])
	local := "127.0.0.1:"
	s.ready = map[string]string{
		"-m http.server": local + ports["3000"], "weir serve": local + ports["9180"], "weir run": local + ports["8080"], "-c quickstart.yaml": local + ports["10000"],
		"-c envoy/quickstart.yaml": local + ports["10000"], "-c dist/try/second.yaml": local + ports["10001"],
	}
	return s
}

// inPage is a page's block of code, by its beginning.
func inPage(t *testing.T, page, begins string) string {
	t.Helper()
	all := blocks(must.Text(t, page))
	i := slices.IndexFunc(all, func(block string) bool { return strings.HasPrefix(block, begins) })
	if i < 0 {
		t.Fatalf("%s has no block that begins with %q", page, begins)
	}
	return all[i]
}

// start is [shell.command] of a weir run whose backend commands ask from then on.
func (s *shell) start(t *testing.T, command string) {
	t.Helper()
	command = s.replace.Replace(command + " --ui none --listen 127.0.0.1:8080")
	said := s.serve(t, command, s.ready["weir run"])
	for deadline := time.Now().Add(time.Minute); !strings.Contains(said(), "\ntry "); {
		if time.Now().After(deadline) {
			t.Fatalf("%s:\n%s", command, said())
		}
	}
	backend := regexp.MustCompile(`(?m)^backend +(http://[0-9.:]+)`).FindStringSubmatch(said())
	if backend == nil {
		t.Fatalf("%s tells no backend:\n%s", command, said())
	}
	s.env = append(s.env, "WEIR_BACKEND="+backend[1])
}

// lastPort is the last of ten ports that were taken for a test. They are below the ports that the
// system gives out.
var lastPort atomic.Int64

// freePorts is the first of ten ports that nobody listens on; its last digit is 0.
func freePorts(t *testing.T) (first int) {
	t.Helper()
	for range 1000 {
		first = 20_000 + 10*int((int64(os.Getpid())+lastPort.Add(1))%1000)
		free := true
		for port := range 10 {
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", first+port))
			if free = free && err == nil; err == nil {
				free = l.Close() == nil && free
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no ten ports are free side by side")
	return 0
}

// sample types a sample. Where it has prompts, the lines between are its output.
func (s *shell) sample(t *testing.T, sample string) {
	t.Helper()
	sample = s.replace.Replace(strings.ReplaceAll(sample, "\\\n", ""))
	prompts := strings.HasPrefix(sample, "$ ")
	var command string
	var want []string
	flush := func() {
		if command != "" {
			s.command(t, command, want)
		}
		command, want = "", nil
	}
	for line := range strings.Lines(sample) {
		line = strings.TrimRight(line, "\n")
		if typed, prompted := strings.CutPrefix(line, "$ "); prompted || !prompts {
			flush()
			command = typed
			continue
		}
		if line != "" && line != "…" {
			want = append(want, line)
		}
	}
	flush()
}

// varies are lines that tell the time, or what is left of a window.
var varies = regexp.MustCompile(`(?i)^(date|ratelimit|x-ratelimit-reset|retry-after|playground|backend|upstream)\b`)

// command types a command, and wants it to print some lines. A server goes on, and is ready.
func (s *shell) command(t *testing.T, command string, want []string) {
	t.Helper()
	for part, address := range s.ready {
		if strings.Contains(command, part) && !strings.Contains(command, "check") {
			if part == "weir serve" && !strings.Contains(command, "--listen") {
				command += " --listen " + address
			}
			if strings.HasPrefix(part, "-c ") {
				command += " --disable-hot-restart" // others of this machine go on
			}
			s.serve(t, command, address)
			return
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		cmd := s.typed(ctx, command)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if err != nil && regexp.MustCompile("no node (of namespace .+ )?has (reported|seen)").Match(out.Bytes()) && ctx.Err() == nil {
			continue // nodes report every few seconds
		}
		lines := strings.Split(strings.ReplaceAll(out.String(), "\r", ""), "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		for _, line := range want {
			if !varies.MatchString(line) && !slices.Contains(lines, strings.TrimSpace(line)) {
				t.Errorf("%s: want %q, got\n%s", command, line, &out)
			}
		}
		must.Reportf(t, err, "%s: %s", command, &out)
		return
	}
}

func (s *shell) typed(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// serve starts a server, waits until it listens, and ends it with the test.
func (s *shell) serve(t *testing.T, command, address string) (said func() string) {
	t.Helper()
	cmd := s.typed(context.Background(), "exec "+command)
	if words := regexp.MustCompile(`^((?:[A-Z_]+=\S+ )+)(.*)`).FindStringSubmatch(command); words != nil {
		cmd = s.typed(context.Background(), words[1]+"exec "+words[2])
	}
	log := new(commandtest.Output)
	cmd.Stdout, cmd.Stderr = log, log
	must.OK(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	deadline := time.Now().Add(time.Minute)
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return log.String
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s: %v\n%s", command, err, log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen on %s\n%s", command, address, log)
		}
	}
}
