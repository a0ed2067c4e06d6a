package filter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
)

// modelSteps is how many random steps a model is compared with.
func modelSteps() int { return nightly.Or(1_000_000, 50_000) }

// Random requests of two keys on two workers, whose failures count and block their key: a request passes if and
// only if its key is not blocked and the window has room for it beside those that are not answered yet.
func TestBlockModel(t *testing.T) {
	const (
		limit, width = 5, 10 * second
		block        = 40 * second
		bucket       = (block/1e6 + 31) / 32 * 1e6
	)
	type open struct {
		v      *fakeVM
		s      *stream
		window int64
	}
	type key struct {
		window, hits, blockedUntil int64
		open                       []open
	}
	for _, extends := range []bool{false, true} {
		p, random := newProxy(t), rand.New(rand.NewPCG(1, 3))
		configuration := fmt.Sprintf(`{"rules": [{"name": "r", "key": [{"header": "x-key"}], "charge_when": {"status": ["401", "5xx"]},
			"block": {"for": "40s", "extend": %t}, "limits": [{"limit": %d, "window": "10s", "algorithm": "fixed_window"}]}]}`, extends, limit)
		workers := []*fakeVM{p.start(configuration), p.start(configuration)}
		keys := map[string]*key{"ann": {}, "bob": {}}
		passed, refused, blocked := 0, 0, 0
		for step := range modelSteps() / 2 {
			name := []string{"ann", "bob"}[random.IntN(2)]
			k, v := keys[name], workers[random.IntN(2)]
			if now := p.now / width; now != k.window {
				k.window, k.hits = now, 0
			}
			switch choice := random.IntN(100); {
			case choice < 40:
				s := v.open("x-key", name)
				stays := p.now < k.blockedUntil
				must.EqualOrEnd(t, s != nil, !stays && k.hits < limit, "step %d: passed is %v with %d hits in the window, %v before the end of a block", step, s != nil, k.hits, time.Duration(k.blockedUntil-p.now))
				switch {
				case s != nil:
					passed++
					k.hits++
					k.open = append(k.open, open{v, s, k.window})
				default:
					refused++
					if !stays || extends {
						k.blockedUntil = (p.now/bucket + 33) * bucket
					}
					if !stays {
						blocked++
					}
				}
			case choice < 90:
				n := len(k.open)
				if n == 0 {
					continue
				}
				i := random.IntN(n)
				o := k.open[i]
				k.open = append(k.open[:i], k.open[i+1:]...)
				status := []string{"200", "302", "401", "503", ""}[random.IntN(5)]
				if status != "" { // or the client leaves, whose hit stays
					o.v.respond(o.s, true, ":status", status)
				}
				if o.v.reset(o.s); (status == "200" || status == "302") && o.window == k.window {
					k.hits--
				}
			default:
				p.now += []int64{1e6, second, 5 * second, 30 * second}[random.IntN(4)]
				for _, v := range workers {
					v.tick()
				}
			}
		}
		must.AtLeast(t, blocked, passed/100, "blocks begun, while %d passed", passed)
		must.AtLeast(t, refused, passed/10, "refused, while %d passed", passed)
	}
}

// Random requests of two keys on two workers wait for tokens, leave, and are let go by ticks that come when they
// come. In the model each waiting request has its token at a time, in their order. It has been let go at
// the ticks that follow, and not before its time.
func TestDelayModel(t *testing.T) {
	const queue, interval = 6, second / 10
	type waiter struct {
		v     *fakeVM
		s     *stream
		since int64
	}
	for _, burst := range []int64{1, 3} {
		p, random := newProxy(t), rand.New(rand.NewPCG(1, 4))
		configuration := strings.Replace(strings.Replace(strings.Replace(smoothRule, `"queue": 3`, `"queue": 6`, 1), `"5s"`, `"5m"`, 1),
			`"burst": 1`, fmt.Sprintf(`"burst": %d`, burst), 1)
		workers := []*fakeVM{p.start(configuration), p.start(configuration)}
		waiting := map[string][]waiter{}
		full := map[string]int64{} // when the key's bucket is full
		token := func(key string, since int64) int64 { return max(since, full[key]-(burst-1)*interval) }
		take := func(key string, at int64) { full[key] = max(full[key], at) + interval }
		passed, refused, waited, left := 0, 0, 0, 0
		// look takes in what a tick has done at a time.
		look := func(step int) {
			for key, line := range waiting {
				for len(line) > 0 && line[0].v.ended[line[0].s.ID()] > 0 {
					at := token(key, line[0].since)
					if at > p.now || line[0].s.Answered() {
						t.Fatalf("step %d: a request is let go %v early", step, time.Duration(at-p.now))
					}
					take(key, at)
					line[0].v.reset(line[0].s)
					line = line[1:]
					passed++
				}
				for _, w := range line {
					if w.v.ended[w.s.ID()] > 0 {
						t.Fatalf("step %d: a request overtakes another", step)
					}
				}
				waiting[key] = line
			}
		}
		for step := range modelSteps() / 2 {
			key := []string{"ann", "bob"}[random.IntN(2)]
			switch choice := random.IntN(100); {
			case choice < 40:
				v := workers[random.IntN(2)]
				s, line := v.pause("x-key", key), waiting[key]
				switch {
				case s != nil:
					if len(line) == queue || len(line) == 0 && token(key, p.now) <= p.now {
						t.Fatalf("step %d: a request waits behind %d, though it has room, or none in the queue", step, len(line))
					}
					waiting[key] = append(line, waiter{v, s, p.now})
					waited++
				case v.reply != nil:
					if len(line) < queue {
						t.Fatalf("step %d: a request is refused though %d wait", step, len(line))
					}
					refused++
				default:
					if len(line) > 0 || token(key, p.now) > p.now {
						t.Fatalf("step %d: a request passes at once though %d wait", step, len(line))
					}
					take(key, p.now)
					v.reset(v.last)
					passed++
				}
			case choice < 45:
				if line := waiting[key]; len(line) > 0 {
					i := random.IntN(len(line))
					line[i].v.reset(line[i].s)
					waiting[key] = append(line[:i:i], line[i+1:]...)
					left++
				}
			case choice < 70:
				p.now += []int64{1e6, interval / 2, interval, second / 2}[random.IntN(4)]
				workers[random.IntN(2)].tick()
				look(step)
			default: // so many ticks that all have their turn
				for range 2*queue + 2 {
					p.now += 1e6
					for _, v := range workers {
						v.tick()
					}
					look(step)
				}
				for key, line := range waiting {
					if len(line) > 0 && token(key, line[0].since) < p.now-2e6 {
						t.Fatalf("step %d: a request waits %v after its time", step, time.Duration(p.now-token(key, line[0].since)))
					}
				}
			}
		}
		must.AtLeast(t, min(passed, refused, waited, left), modelSteps()/1000, "burst %d: the fewest of %d that passed, %d refused, %d that waited and %d that left", burst, passed, refused, waited, left)
		t.Logf("burst %d: %d passed, %d were refused, %d waited, %d left", burst, passed, refused, waited, left)
	}
}
