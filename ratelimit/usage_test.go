package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend/backendtest"
	"weir/internal/must"
	"weir/internal/wire"
)

// Programs send the usage of keys of rules that reveal them: exactly once, through a network that
// loses messages and answers, and all of it when they end.
func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.loseOneOf(3)
		programs := make([]*Namespace, 2)
		for i := range programs {
			programs[i] = w.node(t, Options{Rules: []Rule{
				{Name: "plain", Limits: []Limit{FixedWindow(100, 24*time.Hour)}, Reveal: RevealPlain},
				{Name: "short", Limits: []Limit{FixedWindow(1000, 24*time.Hour)}, Reveal: 2},
				{Name: "hashed", Limits: []Limit{FixedWindow(1000, 24*time.Hour)}},
			}})
		}
		passed := int64(0)
		for i := range 150 {
			for _, n := range programs {
				for _, rule := range []string{"plain", "short", "hashed"} {
					l := must.Get(n.Limiter(rule))(t)
					allowed := must.Get(l.Allow(t.Context(), "ann", "GET"))(t)
					if rule == "plain" && allowed {
						passed++
					}
				}
			}
			if i%10 == 0 {
				pause(time.Second)
			}
		}
		w.set(func() { w.loses = nil })
		for _, n := range programs {
			must.OK(t, n.Close(context.Background()))
		}
		want := map[string]int64{"plain ann GET": passed, "short an… GE…": 300}
		got := map[string]int64{}
		backendtest.Used(t, w.store, "test", func(l wire.UsedLabel, name string, _ uint32, hits int64) { got[l.Rule+" "+name] += hits })
		must.Same(t, got, want, "")
	})
}
