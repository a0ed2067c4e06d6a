package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
)

// asProgram makes the test's binary a program that limits with the library. It has the program's
// options in JSON.
const asProgram = "WEIR_TEST_AS_PROGRAM"

// programOptions are those of a program with the rule per-user of the namespace shop.
type programOptions struct {
	Backend string
	Limit   uint64 // in a window that does not end
	Timeout time.Duration
	Failure ratelimit.FailureMode
}

// told is what a program tells of some requests of a key, and of itself.
type told struct {
	Passed  int
	Quota   uint64        // of the last request
	Longest time.Duration // that one took
	Stats   ratelimit.Stats
}

// limitUsers is the program: each line on its standard input has a key, and how many requests to send in turn.
// At the end of its input it closes the namespace.
func limitUsers(options string) (err error) {
	var o programOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	backend, err := ratelimit.Dial(o.Backend, ratelimit.DialOptions{})
	if err != nil {
		return err
	}
	shop, err := ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop", Backend: backend, Timeout: o.Timeout, OnBackendFailure: o.Failure,
		Rules: []ratelimit.Rule{{Name: "per-user", Limits: []ratelimit.Limit{ratelimit.FixedWindow(o.Limit, 366*24*time.Hour)}}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close(context.Background()), backend.Close()) }()
	perUser, err := shop.Limiter("per-user")
	if err != nil {
		return err
	}
	for out := json.NewEncoder(os.Stdout); ; {
		var key string
		var requests int
		if _, err := fmt.Scan(&key, &requests); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var is told
		for range requests {
			start := time.Now()
			d, err := perUser.Decide(context.Background(), ratelimit.Key{key}, 1)
			if err != nil {
				return err
			}
			if is.Quota = d.Limit.Quota(); d.Allowed {
				is.Passed++
			}
			is.Longest = max(is.Longest, time.Since(start))
		}
		is.Stats = shop.Stats()
		if err := out.Encode(is); err != nil {
			return err
		}
	}
}

// program is a process with the library.
type program struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// startProgram starts a program, and ends it at the test's end.
func startProgram(t *testing.T, of *served, o programOptions) *program {
	t.Helper()
	o.Backend = of.url("")
	options := must.Get(json.Marshal(o))(t)
	p := &program{t: t, command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), asProgram+"="+string(options))
	p.command.Stderr = os.Stderr
	in, inErr := p.command.StdinPipe()
	out, outErr := p.command.StdoutPipe()
	must.OK(t, errors.Join(inErr, outErr, p.command.Start()))
	p.in, p.out = in, json.NewDecoder(out)
	t.Cleanup(func() {
		if p.command.ProcessState == nil {
			t.Error(p.command.Process.Kill(), p.command.Wait())
		}
	})
	return p
}

// ask has the program send requests of a key.
func (p *program) ask(key string, requests int) (is told) {
	p.t.Helper()
	must.Get(fmt.Fprintln(p.in, key, requests))(p.t)
	must.OK(p.t, p.out.Decode(&is))
	return is
}

// end has the program close its namespace.
func (p *program) end() {
	p.t.Helper()
	must.Report(p.t, errors.Join(p.in.Close(), p.command.Wait()))
}

// until waits until something is so, and returns how long that took.
func until(t *testing.T, what string, done func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !done() {
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("after two minutes: want %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
	return time.Since(start)
}

// hitsOf returns how many hits of all keys a backend has counted.
func hitsOf(s *served) (hits int) {
	for _, n := range s.counted() {
		hits += int(n)
	}
	return hits
}

// pushesTo returns how many pushes and reports a backend has answered.
func pushesTo(s *served) (answered int) {
	s.t.Helper()
	_, metrics := ask(s.t, "GET", s.url("/metrics"), "", nil)
	for _, found := range regexp.MustCompile(`(?m)^weir_http_requests_total\{.*push.*\} (\d+)$`).FindAllStringSubmatch(metrics, -1) {
		answered += must.Get(strconv.Atoi(found[1]))(s.t)
	}
	return answered
}

// A program that closes its namespace has given back what it had leased: another gets all that is left.
func TestClosedProgramGivesLeasesBack(t *testing.T) {
	t.Parallel()
	const limit, used = 1000, 200
	s := serveStore(t, redistest.Start(t).URL())
	one := startProgram(t, s, programOptions{Limit: limit, Timeout: time.Minute})
	must.EqualOrEnd(t, one.ask("ann", used).Passed, used, "passed of %d", used)
	until(t, "leased hits", func() bool { return hitsOf(s) > used })
	t.Logf("%d hits are leased", hitsOf(s)-used)
	one.end()
	must.Equal(t, hitsOf(s), used, "hits are counted after it")
	// Its last requests may be refused for hits that it has just given back itself, until the backend has them.
	other, passed := startProgram(t, s, programOptions{Limit: limit, Timeout: time.Minute}), 0
	until(t, "all that is left", func() bool { passed += other.ask("ann", limit).Passed; return passed >= limit-used })
	must.Equal(t, passed, limit-used, "another program: passed")
	other.end()
}

// While weir serve hangs, a few requests wait, and once three callouts have failed none does. The mode
// decides them all.
func TestHangingBackend(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	for name, test := range map[string]struct {
		mode     ratelimit.FailureMode
		requests int // at a time, until the breaker is open
	}{
		"local": {ratelimit.FailLocal, 1},
		"allow": {ratelimit.FailAllow, 1},
		"deny":  {ratelimit.FailDeny, 1},
		"idle":  {ratelimit.FailDeny, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveStore(t, "file:"+t.TempDir()+"/weir.db")
			p := startProgram(t, s, programOptions{Limit: 100, Timeout: timeout, Failure: test.mode})
			defer p.end()
			keys := 0
			decided := func() time.Duration { // the limit leases nothing
				return until(t, "a request that the backend decides", func() bool {
					before := p.ask("bob", 0).Stats
					keys++
					is := p.ask(fmt.Sprint("bob", keys), 1).Stats
					return is.WaitedRequests > before.WaitedRequests && is.LateRequests == before.LateRequests
				})
			}
			decided()
			must.OK(t, s.Cmd.Process.Signal(syscall.SIGSTOP))
			// Its threads stop one after the other: until then it answers.
			must.Get(syscall.Wait4(s.Cmd.Process.Pid, nil, syscall.WUNTRACED, nil))(t)
			sent, passed, longest, waited := 0, 0, time.Duration(0), uint64(0)
			// fail sends requests, so many at a time, until more callouts have failed.
			fail := func(requests int, more uint64) time.Duration {
				before := p.ask("ann", 0).Stats
				return until(t, "failed callouts", func() bool {
					is := p.ask("ann", requests)
					sent, passed, longest = sent+requests, passed+is.Passed, max(longest, is.Longest)
					waited = is.Stats.WaitedRequests - before.WaitedRequests
					return is.Stats.FailedPushes >= before.FailedPushes+more
				})
			}
			opened := fail(test.requests, 3)
			t.Logf("the breaker is open after %v: %d of %d requests waited for up to %v, with a timeout of %v", opened, waited, sent, longest, timeout)
			must.AtMost(t, waited, 3, "requests that waited before the breaker was open")
			fail(1, nightly.Or[uint64](20, 3))
			must.Equal(t, waited, 0, "of %d requests, those that waited while the breaker was open", sent)
			must.Equal(t, passed, map[ratelimit.FailureMode]int{ratelimit.FailLocal: min(sent, 100), ratelimit.FailAllow: sent}[test.mode], "passed of %d", sent)
			must.OK(t, s.Cmd.Process.Signal(syscall.SIGCONT))
			t.Logf("%d requests; the backend decides again %v after it went on", sent, decided())
		})
	}
}

// An override that is set or removed by the command holds in a running program soon, and in an idle
// program by the time at which the command tells so.
func TestOverrideOfRunningProgram(t *testing.T) {
	t.Parallel()
	s := serveStore(t, redistest.Start(t).URL())
	o := programOptions{Limit: 100, Timeout: time.Minute}
	busy, idle := startProgram(t, s, o), startProgram(t, s, o)
	defer busy.end()
	defer idle.end()
	weir := func(args ...string) string {
		t.Helper()
		command := exec.Command(os.Args[0], append([]string{"override"}, args...)...)
		command.Env = append(os.Environ(), asCommand+"=1", "WEIR_BACKEND="+s.url(""))
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	holds := func(args []string, quota uint64) {
		t.Helper()
		done := make(chan string, 1)
		go func() { done <- weir(args...) }()
		took := until(t, "the override's limit", func() bool { return busy.ask("ann", 1).Quota == quota })
		t.Logf("%v: a running program knows it %v after the command began", args, took)
		<-done
		must.Contains(t, weir("set", "shop", "per-user", "eve", "7/366d", "--force", "--wait", "30s"), "known to 2 of 2 nodes", "the command said")
		must.Equal(t, idle.ask("ann", 1).Quota, quota, "an idle program has a limit of")
	}
	busy.ask("ann", 10)
	for range nightly.Or(10, 1) {
		holds([]string{"set", "shop", "per-user", "ann", "5/366d", "--force"}, 5)
		must.Equal(t, busy.ask("ann", 20).Passed, 0, "passed of a key that has used up its limit")
		holds([]string{"unset", "shop", "per-user", "ann"}, 100)
	}
}

// An idle program gives back the hits that stand, and then asks what is new twice a minute.
func TestIdleProgram(t *testing.T) {
	t.Parallel()
	s := serveStore(t, "memory")
	p := startProgram(t, s, programOptions{Limit: 100_000, Timeout: time.Minute})
	defer p.end()
	const used = 50
	must.EqualOrEnd(t, p.ask("ann", used).Passed, used, "passed")
	until(t, "leased hits", func() bool { return hitsOf(s) > used })
	took := until(t, "no more hits than were used", func() bool { return hitsOf(s) == used })
	t.Logf("all leased hits are back %v after the last request", took)
	if !nightly.On() {
		return
	}
	const poll, polls = 30 * time.Second, 8
	next := func() {
		t.Helper()
		before := pushesTo(s)
		until(t, "another request", func() bool { return pushesTo(s) > before })
	}
	<-time.After(130 * time.Second) // as long as it reports on the requests of the last two minutes
	next()
	start := time.Now()
	for range polls {
		next()
	}
	span := time.Since(start)
	t.Logf("%d requests in %v", polls, span)
	must.AtLeast(t, span, polls*poll-poll/2, "for %d requests, twice a minute", polls)
}
