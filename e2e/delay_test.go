package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestDelays has requests wait in a proxy with two workers, and lets them go in the order of their
// coming, one each tenth of a second. Requests beyond the queue are refused at once.
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
			for deadline := time.Now().Add(hang); n.metric(t, waits) <= int64(i); {
				if time.Now().After(deadline) {
					t.Fatalf("request %d does not wait", i)
				}
			}
		}
		if r := ask(t, client(t), n.url()); r.status != http.StatusTooManyRequests {
			t.Errorf("status %d with a full queue", r.status)
		}
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

// smooth lets ten requests pass a second, and 20 wait, as nginx's limit_req does with rate=10r/s
// and burst=20.
const smooth = `{"rules": [{"name": "r", "delay": {"most": "2s", "queue": 20},
	"limits": [{"limit": 10, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`

// TestDelaysAreDrained replaces the configuration while requests wait. All of them have room in the
// end, in their order, though nobody comes to the listener that they wait in.
func TestDelaysAreDrained(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		n := d.node(t, nodeConfig{configuration: smooth})
		const waiting = 8
		answers := make(chan bool, waiting+1)
		for range waiting + 1 {
			go func() {
				r, err := send(t, client(t), n.url())
				answers <- err == nil && r.status == http.StatusOK
			}()
		}
		for deadline := time.Now().Add(hang); n.metric(t, metricName("delayed_requests_total")) < waiting; {
			if time.Now().After(deadline) {
				t.Fatal("no requests wait")
			}
		}
		if err := n.configure(`{"rules": [{"name": "other", "limits": [{"limit": 1000, "window": "1s"}]}]}`); err != nil {
			t.Fatal(err)
		}
		ask(t, client(t), n.url()).want(t, "x-ratelimit-limit: 1000")
		for i := range waiting + 1 {
			if !<-answers {
				t.Errorf("request %d does not pass", i)
			}
		}
		n.idle(t)
	})
}
