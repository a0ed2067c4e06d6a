package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"weir/internal/must"
)

// TestDelays lets requests wait in a proxy with two workers. They go on in the order of their
// arrival, one each tenth of a second. Requests beyond the queue are refused at once.
func TestDelays(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		const queue = 5
		clock := newClock()
		n := d.node(t, nodeConfig{clock: clock, configuration: `{"rules": [{"name": "r", "delay": {"most": "30s", "queue": 5},
			"limits": [{"limit": 10, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`})
		type answered struct {
			number int
			reply  reply
			err    error
		}
		answers := make(chan answered, queue)
		ask(t, client(t), n.url()).want(t, "x-ratelimit-delayed:")
		for i := range queue {
			client := client(t)
			go func() {
				r, err := send(t, client, n.url())
				answers <- answered{i, r, err}
			}()
			waits := metricName("delayed_requests_total")
			must.EqualOrEnd(t, soon(func() bool { return n.metric(t, waits) > int64(i) }), true, "request %d waits", i)
		}
		must.Equal(t, ask(t, client(t), n.url()).status, http.StatusTooManyRequests, "status with a full queue")
		for i := range queue {
			clock.advance(t, 100*time.Millisecond)
			got := <-answers
			if got.err != nil || got.reply.status != http.StatusOK || got.number != i {
				t.Fatalf("request %d is answered in the place of %d: %d, %v", got.number, i, got.reply.status, got.err)
			}
			got.reply.want(t, fmt.Sprintf("x-ratelimit-delayed: %d", 100*(i+1)))
		}
		select {
		case got := <-answers:
			t.Errorf("request %d is answered twice", got.number)
		default:
		}
	})
}

// TestDelaysAreDrained replaces the configuration while a thousand requests wait, and removes the
// listener while a thousand others wait. All pass when there is room, even without new requests to
// their listener, and none stays. Envoy cuts requests that still wait when its drain time is over.
func TestDelaysAreDrained(t *testing.T) {
	const waiting = 1000
	const delayed = `{"rules": [{"name": "r", "delay": {"most": "30s", "queue": 1000},
		"limits": [{"limit": 1000, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`
	onEach(t, 1, func(t *testing.T, d driver) {
		if e, envoy := d.(envoys); envoy {
			e.drain = 30
			d = e
		}
		clock := newClock()
		n := d.node(t, nodeConfig{clock: clock, configuration: delayed})
		waited := int64(0)
		wait := func() (answers chan error) {
			answers = make(chan error, waiting+1)
			sender, url := client(t), n.url()
			for range waiting + 1 {
				go func() {
					r, err := send(t, sender, url)
					if err == nil && r.status != http.StatusOK {
						err = fmt.Errorf("status %d", r.status)
					}
					answers <- err
				}()
			}
			waited += waiting
			must.EqualOrEnd(t, soon(func() bool { return n.metric(t, metricName("delayed_requests_total")) >= waited }), true, "requests wait")
			return answers
		}
		pass := func(answers chan error) {
			clock.advance(t, time.Second) // room for all
			for got := 0; got <= waiting; {
				select {
				case err := <-answers:
					must.OKf(t, err, "answer %d", got)
					got++
				case <-time.After(5 * time.Millisecond): // a worker that waits for another checks again
					clock.advance(t, 5*time.Millisecond)
				}
			}
		}
		answers := wait()
		must.OK(t, n.configure(`{"rules": [{"name": "other", "limits": [{"limit": 1000, "window": "1s"}]}]}`))
		ask(t, client(t), n.url()).want(t, "x-ratelimit-limit: 1000")
		pass(answers)
		n.idle(t)

		e, envoy := n.(*envoyNode)
		if !envoy {
			return // the wazero host has no listeners
		}
		must.OK(t, n.configure(delayed))
		clock.advance(t, time.Second)
		answers = wait()
		must.OK(t, e.files.SetListeners(t.Context(), e.Envoy, nil))
		pass(answers)
	})
}
