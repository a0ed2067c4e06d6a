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

// TestDelaysAreDrained replaces the configuration, or has the listener go, while a thousand requests wait.
// All of them have room in the end, though nobody comes to the listener that they wait in, and none stays.
func TestDelaysAreDrained(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		const waiting = 1000
		for name, drain := range map[string]func(t *testing.T, n node){
			"replaced": func(t *testing.T, n node) {
				if err := n.configure(`{"rules": [{"name": "other", "limits": [{"limit": 1000, "window": "1s"}]}]}`); err != nil {
					t.Fatal(err)
				}
				ask(t, client(t), n.url()).want(t, "x-ratelimit-limit: 1000")
			},
			"gone": func(t *testing.T, n node) {
				e := n.(*envoyNode)
				if err := e.files.SetListeners(t.Context(), e.Envoy, nil); err != nil {
					t.Fatal(err)
				}
			},
		} {
			if _, envoy := d.(envoys); name == "gone" && !envoy {
				continue // the wazero host has no listeners
			}
			t.Run(name, func(t *testing.T) {
				clock := newClock()
				n := d.node(t, nodeConfig{clock: clock, configuration: `{"rules": [{"name": "r", "delay": {"most": "30s", "queue": 1000},
					"limits": [{"limit": 1000, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`})
				answers := make(chan error, waiting+1)
				sender := client(t)
				for range waiting + 1 {
					go func() {
						r, err := send(t, sender, n.url())
						if err == nil && r.status != http.StatusOK {
							err = fmt.Errorf("status %d", r.status)
						}
						answers <- err
					}()
				}
				for deadline := time.Now().Add(hang); n.metric(t, metricName("delayed_requests_total")) < waiting; {
					if time.Now().After(deadline) {
						t.Fatal("no requests wait")
					}
				}
				drain(t, n)
				clock.advance(t, time.Second) // room for all
				for i := range waiting + 1 {
					if err := <-answers; err != nil {
						t.Errorf("answer %d: %v", i, err)
					}
				}
				n.idle(t)
			})
		}
	})
}
