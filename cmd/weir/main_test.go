package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"weir/internal/store/memory"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

// asCommand makes the test's binary the command.
const asCommand = "WEIR_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"", 2, "", "Usage:"},
		{"help", 0, "Usage:", ""},
		{"--help", 0, "Usage:", ""},
		{"dance", 2, "", `unknown command "dance"`},
		{"serve -h", 0, "-listen address", ""},
		{"serve --color", 2, "", "not defined: -color"},
		{"serve -h", 0, "-max-counters N", ""},
		{"serve --listen nowhere --max-counters 1", 1, "", "nowhere"},
		{"serve --max-counters 0", 2, "", "want 1 to 1073741824"},
		{"serve --max-counters many", 2, "", "want 1 to 1073741824"},
		{"serve --listen 127.0.0.1:0 --max-counters 5 --store redis://:hunter2@host", 2, "", "--max-counters: want it with --store memory only"},
		{"serve --listen 127.0.0.1:0 --max-counters 5 --store postgres://weir:hunter2@host/db", 2, "", "--max-counters: want it with --store memory only"},
		{"run --max-counters 5", 2, "", "not defined: -max-counters"},
		{"serve hunter2", 2, "", "want flags only"},
		{"serve --listen nowhere", 1, "", "nowhere"},
		{"serve --listen 127.0.0.1:0 --store redis+cluster://:hunter2@host/3", 2, "", "want no database of a cluster"},
		{"serve --listen 127.0.0.1:0 --store postgres://weir:hunter2/@host", 2, "", "want postgres://"},
		{"serve --listen 127.0.0.1:0 --store mysql://weir:hunter2@host", 2, "", `got "mysql://…"`},
		{"serve --listen 127.0.0.1:0 --store hunter2", 2, "", "want memory, redis://…, rediss://…, redis+cluster://…, rediss+cluster://… or postgres://…"},
		{"serve --listen 127.0.0.1:0 --store redis://:hunter2/@host", 2, "", "want redis://"},
	} {
		t.Run(test.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), strings.Fields(test.args), environment{
				stdout: &stdout, stderr: &stderr, getenv: func(string) string { return "" },
			})
			if code != test.code || !strings.Contains(stdout.String(), test.stdout) || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("exit code %d, want %d; stdout, want %q:\n%s\nstderr, want %q:\n%s",
					code, test.code, test.stdout, &stdout, test.stderr, &stderr)
			}
			if (test.stdout == "") != (stdout.Len() == 0) || (test.stderr == "") != (stderr.Len() == 0) {
				t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
			}
			if strings.Contains(stderr.String(), "hunter2") {
				t.Errorf("stderr has a password:\n%s", &stderr)
			}
		})
	}
}

// The bound reaches the store.
func TestMaxCounters(t *testing.T) {
	counters, closer, err := storeFlags{name: "memory", maxCounters: 2}.open()
	if err != nil {
		t.Fatal(err)
	}
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1, Takes: []wire.Take{{Least: 1, Most: 1}}}
	for id := range byte(3) {
		p.Takes[0].Rooms = append(p.Takes[0].Rooms, wire.Room{Limit: 5, Cost: 1, LimitCounter: wire.LimitCounter{
			ID: wire.ID{id}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000,
		}})
	}
	if _, err := counters.Push(t.Context(), p, 1); err != nil {
		t.Fatal(err)
	}
	if got := counters.(*memory.Store).Size().Counters; got != 2 {
		t.Errorf("%d counters, want 2", got)
	}
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
}

// TestServeProcess runs weir serve as a process, and ends it as an operator does.
func TestServeProcess(t *testing.T) {
	for store, signal := range map[string]os.Signal{"memory": syscall.SIGTERM, redistest.Start(t, "--requirepass", "hunter2").URL(): os.Interrupt} {
		t.Run(store, func(t *testing.T) {
			url := strings.Replace(store, "redis://", "redis://:hunter2@", 1)
			command := exec.Command(os.Args[0], "serve", "--listen", "127.0.0.1:0", "--store", url)
			command.Env = append(os.Environ(), asCommand+"=1", "WEIR_TOKEN=s3cret")
			stderr, err := command.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if command.ProcessState == nil {
					t.Error(command.Process.Kill(), command.Wait())
				}
			})
			log := bufio.NewReader(stderr)
			line, err := log.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(line)
			if address == nil {
				t.Fatalf("log, want an address: %s", line)
			}

			push := wire.AppendPush(nil, &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1, Items: []wire.Item{
				{LimitCounter: wire.LimitCounter{Kind: uint8(window.FirstHitWindow), WidthMillis: 1000}, Hits: []int64{0}},
			}})
			for _, request := range []struct {
				method, path, token string
				status              int
				body                string
			}{
				{"GET", "/healthz", "", 200, "ok\n"},
				{"GET", "/metrics", "", 200, "\ngo_goroutines "},
				{"GET", "/metrics", "", 200, "\nprocess_open_fds "},
				{"POST", "/v1/push", "s3cret", 200, ""},
				{"POST", "/v1/push", "", 401, "bearer token"},
			} {
				status, body := ask(t, request.method, "http://"+address[1]+request.path, request.token, push)
				if status != request.status || !strings.Contains(body, request.body) {
					t.Errorf("%s: status %d, want %d and %q:\n%s", request.path, status, request.status, request.body, body)
				}
			}

			if err := command.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(log)
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Wait(); err != nil {
				t.Errorf("%v\n%s", err, rest)
			}
			for _, secret := range []string{"s3cret", "hunter2"} {
				if strings.Contains(line+string(rest), secret) {
					t.Errorf("the log has the secret %s:\n%s%s", secret, line, rest)
				}
			}
		})
	}
}

// The log of weir serve has a line when its store goes away and one when it is back, however many
// pushes come meanwhile.
func TestServeLog(t *testing.T) {
	redis := redistest.Start(t)
	command := exec.Command(os.Args[0], "serve", "--listen", "127.0.0.1:0", "--store", redis.URL())
	command.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if command.ProcessState == nil {
			t.Error(command.Process.Kill(), command.Wait())
		}
	})
	log := bufio.NewReader(stderr)
	line, err := log.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(line)[1]
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
		if status := push(); status != http.StatusServiceUnavailable {
			t.Errorf("status %d while the store is away", status)
		}
	}
	redis.Restart()
	for _, want := range []string{"the store fails", "the store is back"} {
		// The store is said to be back when it has not failed for a while.
		lines := make(chan string, 1)
		go func() {
			line, err := log.ReadString('\n')
			if err != nil {
				line += err.Error()
			}
			lines <- line
		}()
		for got := ""; got == ""; {
			push()
			select {
			case got = <-lines:
				if !strings.Contains(got, want) {
					t.Errorf("log, want %q: %s", want, got)
				}
			default:
			}
		}
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(log)
	if err := errors.Join(err, command.Wait()); err != nil || len(rest) > 0 {
		t.Errorf("error %v, and in the log:\n%s", err, rest)
	}
}

func ask(t *testing.T, method, url, token string, body []byte) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", wire.ContentType)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}
