// Package pair is two proxies that keep to one limit together, for the playground: their engines, the
// backend's store and the network between them run as they do elsewhere, by the page's time.
package pair

import (
	"weir/internal/sim"
	"weir/window"
)

// Proxies is how many there are.
const Proxies = 2

// Pair is two proxies, one backend, and a rule with a fixed window and one key. It is not safe for
// concurrent use.
type Pair struct {
	world           *sim.World
	width           int64
	passed, refused [Proxies]int
}

// New starts the proxies. The limit is hits per window, and width is the window's, in nanoseconds. Time
// begins with a window, some seconds after the proxies' start.
func New(hits uint64, width int64) (*Pair, error) {
	w, err := sim.New(sim.Options{
		Places: Proxies, Workers: 1, Network: sim.Near, Capacity: 100, SyncRate: sim.Second,
		Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: width}, Max: hits},
	})
	if err != nil {
		return nil, err
	}
	p := &Pair{world: w, width: width}
	w.Passed = func(r *sim.Request) { p.passed[r.Number]++ }
	w.Refused = func(r *sim.Request, _ int64) { p.refused[r.Number]++ }
	// The backend hears of a proxy by its first push.
	for i := range Proxies {
		w.Request(i, 0, []byte("warm up"), i)
	}
	p.Advance((5*sim.Second + width - 1) / width * width)
	p.passed, p.refused, w.Waits, w.Requests = [Proxies]int{}, [Proxies]int{}, sim.Waits{}, 0
	return p, nil
}

// Hit sends a request to a proxy.
func (p *Pair) Hit(proxy int) { p.world.Request(proxy, 0, []byte("ann"), proxy) }

// Away takes the backend away, or brings it back.
func (p *Pair) Away(away bool) {
	p.world.Network.LostBefore = 0
	if away {
		p.world.Network.LostBefore = 1
	}
}

// Advance lets time pass, in nanoseconds.
func (p *Pair) Advance(nanos int64) { p.world.Advance(p.world.Now + nanos) }

// AppendView appends how many hits of the present window have passed, how long it lasts, in nanoseconds, how many
// requests there were and how many of them waited for the backend; then for each proxy what has passed and was
// refused, how many hits it holds for requests to come, and how many callouts it has made.
func (p *Pair) AppendView(numbers []float64) []float64 {
	seen := p.world.Look()
	numbers = append(numbers, float64(seen.Most[0][0]), float64(p.width-(p.world.Now-sim.Monday)%p.width), float64(p.world.Requests), float64(p.world.Waits.Requests))
	for i := range Proxies {
		numbers = append(numbers, float64(p.passed[i]), float64(p.refused[i]), float64(seen.Leased[i][0].Free), float64(p.world.SentBy(i)))
	}
	return numbers
}
