package filter_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/backend/backendtest"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/usage"
	"weir/internal/wire"
)

// modelRates are the prices of models in a simulated month, in millionths: those before its middle, and those
// after.
type modelRates struct{ before, after usage.Rates }

func ratesOf(input, cached, output uint64) (r usage.Rates) {
	r[usage.Input], r[usage.Cached], r[usage.Output] = input, cached, output
	r.Complete(func(kind usage.Kind) bool { return r[kind] != 0 || kind == usage.Cached })
	return r
}

// exactly is the cost of so many tokens, by exact arithmetic, rounded up.
func exactly(r *usage.Rates, tokens map[usage.Kind]int) int64 {
	sum := new(big.Rat)
	for kind, n := range tokens {
		sum.Add(sum, new(big.Rat).Mul(big.NewRat(int64(r[kind]), usage.Parts), new(big.Rat).SetInt64(int64(n))))
	}
	whole, rest := new(big.Int).QuoRem(sum.Num(), sum.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole.Int64()
}

// asked is a request under way in the simulated month.
type asked struct {
	v        *fakeVM
	s        *stream
	key      int
	model    int
	rates    *usage.Rates
	body     int // bytes
	most     int // tokens of an answer
	reserved int64
	day      int64
}

// checkUsed wants the backend to know what was used of dollars, by key, model and day, in millionths as in all.
func checkUsed(t *testing.T, w *world, want map[string]int64) {
	t.Helper()
	got := map[string]int64{}
	backendtest.Used(t, w.store, "default", func(l wire.UsedLabel, name string, day uint32, hits int64) {
		got[fmt.Sprint(name, " ", l.Model, " ", day)] += hits
	})
	different := 0
	for key, hits := range want {
		if got[key] != hits {
			different++
			t.Logf("%s has used %d, want %d", key, got[key], hits)
		}
		delete(got, key)
	}
	for key, hits := range got {
		if hits != 0 {
			different++
			t.Logf("%s has used %d, want nothing", key, hits)
		}
	}
	must.Equal(t, different, 0, "of %d sums are others", len(want))
}

// A month of a team's traffic, on two gateways that are killed now and then, with prices that
// change in its middle: the backend has of each key the cost of its requests, to the last unit.
// That is never above the key's budget, as each request reserves the most that it may cost. A
// request that dies with its gateway costs what it has reserved. The usage of keys, by model and day,
// is the same sum.
func TestMonthOfMoney(t *testing.T) {
	keys, requests := nightly.Or(1000, 60), nightly.Or(300_000, 6_000)
	const models, budget = 8, 400_000
	random := rand.New(rand.NewPCG(3, 32))
	rates := make([]modelRates, models)
	of, changed := "", []wire.Price(nil)
	for i := range rates {
		set := func(r *usage.Rates) (text string, kinds []wire.PriceOfKind) {
			input, cached, output := uint64(1+random.IntN(5_000_000)), uint64(1+random.IntN(500_000)), uint64(1+random.IntN(40_000_000))
			*r = ratesOf(input, cached, output)
			return fmt.Sprintf(`"model-%d": {"input": %d.%06d, "cached": %d.%06d, "output": %d.%06d}`, i, input/1e6, input%1e6, cached/1e6, cached%1e6, output/1e6, output%1e6),
				[]wire.PriceOfKind{{Kind: uint64(usage.Input), Millionths: input}, {Kind: uint64(usage.Cached), Millionths: cached}, {Kind: uint64(usage.Output), Millionths: output}}
		}
		text, _ := set(&rates[i].before)
		of += ", " + text
		_, kinds := set(&rates[i].after)
		changed = append(changed, wire.Price{List: "models", Model: fmt.Sprint("model-", i), Kinds: kinds})
	}
	configuration := `{"backend": {"cluster": "b"}, "sync_rate": 0, "prices": {"models": {"of": {` + of[2:] + `}}},
		"rules": [{"name": "dollars", "key": [{"header": "x-key"}], "cost_on_response": "auto", "price": "models", "on_failure": "keep", "reveal": "plain",
			"reserve": {"request_json": ["max_completion_tokens", "max_tokens"], "default": 100, "unread": "refuse", "prompt": {"bytes_per_token": 1}},
			"limits": [{"limit": ` + fmt.Sprint(budget) + `, "window": "month", "algorithm": "fixed_window"}]}]}`
	w := newWorld(t, 2, 2, configuration)
	for _, v := range w.vms {
		v.headersOnly = true
	}
	var open []asked
	cost := make([]int64, keys) // settled, and of requests that have died
	used := map[string]int64{}  // by key, model and day
	passed, refused, killed, after := 0, 0, 0, false
	spend := func(a *asked, hits int64) {
		cost[a.key] += hits
		used[fmt.Sprintf("key %d model-%d %d", a.key, a.model, a.day)] += hits
	}
	settle := func() {
		for range 4 {
			for _, v := range w.vms {
				w.deliver(v)
			}
		}
	}
	begin := func() {
		a := asked{v: w.any(), key: random.IntN(1 + random.IntN(keys)), model: random.IntN(models), most: 1 + random.IntN(300)}
		body := fmt.Sprintf(`{"model":"model-%d","messages":["%s"],"%s":%d}`, a.model, strings.Repeat("x", random.IntN(400)),
			[]string{"max_tokens", "max_completion_tokens"}[random.IntN(2)], a.most)
		if a.rates = &rates[a.model].before; after {
			a.rates = &rates[a.model].after
		}
		a.body, a.day = len(body), w.now/int64(24*time.Hour)
		dearest := usage.Rates{usage.Input: a.rates.Prompt(), usage.Output: a.rates.Answer()}
		a.reserved = exactly(&dearest, map[usage.Kind]int{usage.Input: a.body, usage.Output: a.most})
		s, action := a.v.ask("x-key", fmt.Sprint("key ", a.key))
		if action == types.ActionPause && a.v.reply == nil {
			action = a.v.upload(s, true, body)
		}
		for rounds := 0; action == types.ActionPause && a.v.reply == nil && !a.v.resumed; rounds++ {
			w.deliver(a.v)
			must.EqualOrEnd(t, rounds < 100, true, "what a request waits for comes")
		}
		if a.v.reply != nil {
			refused++
			a.v.reset(s)
			return
		}
		a.s = s
		passed++
		open = append(open, a)
	}
	end := func(i int) {
		a := open[i]
		open = slices.Delete(open, i, i+1)
		in, out := 1+random.IntN(a.body), random.IntN(a.most+1)
		cached := random.IntN(in + 1)
		tells := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, in, out, in+out, cached)
		switch random.IntN(3) {
		case 0:
			a.v.respond(a.s, false, "content-type", "text/event-stream")
			for range random.IntN(4) {
				a.v.bring(a.s, false, chat)
			}
			a.v.bring(a.s, true, `data: {"choices":[],`+tells+"}\n\ndata: [DONE]\n\n")
		case 1:
			a.v.respond(a.s, false, "content-type", "application/json")
			a.v.bring(a.s, true, `{"choices":[],`+tells+`}`)
		default: // the client goes, or the upstream does not tell
			if random.IntN(2) == 0 {
				a.v.respond(a.s, false, "content-type", "application/json")
				a.v.bring(a.s, true, `{}`)
			}
			a.v.reset(a.s)
			spend(&a, a.reserved)
			return
		}
		a.v.reset(a.s)
		spend(&a, exactly(a.rates, map[usage.Kind]int{usage.Input: in - cached, usage.Cached: cached, usage.Output: out}))
	}
	kill := func() {
		for range 10 {
			begin() // so that there is something to die, even late in the month when most are refused
		}
		settle()                         // what was sent arrives; what is under way dies
		often(3, w.advance, time.Second) // and usage is told
		at := random.IntN(2)
		p := newProxy(t)
		p.now = w.now
		for i := range 2 {
			dead := w.vms[2*at+i]
			open = slices.DeleteFunc(open, func(a asked) bool {
				if a.v == dead {
					spend(&a, a.reserved)
					killed++
				}
				return a.v == dead
			})
			w.vms[2*at+i] = p.start(configuration)
			w.vms[2*at+i].settle, w.vms[2*at+i].headersOnly = w.deliver, true
		}
		w.proxies[at] = p
		often(6, w.advance, time.Second) // until it has the prices
	}
	w.advance(time.Second)
	const length = 26 * 24 * time.Hour // of January, from a Monday on
	for n := range requests {
		if n == requests/2 {
			w.price(changed...)
			often(5, w.advance, time.Second)
			after = true
		}
		begin()
		for len(open) > 20 || len(open) > 0 && random.IntN(3) > 0 {
			end(random.IntN(len(open)))
		}
		if random.IntN(requests/12) == 0 {
			kill()
		}
		settle() // or else what is under way would be lost to its sender in the seconds that pass
		w.advance(length / time.Duration(requests))
	}
	for len(open) > 0 {
		end(0)
	}
	settle()
	often(20, w.advance, time.Second)
	want := int64(0)
	for key, c := range cost {
		want += c
		must.AtMost(t, c, budget, "key %d has spent", key)
	}
	checkUsed(t, w, used)
	sums := map[int64]int{}
	must.OK(t, w.store.Counters(t.Context(), "default", nil, func(c store.LimitCounter) error {
		sum := int64(0)
		for _, window := range c.Windows {
			sum += window.Hits
		}
		sums[sum]++
		return nil
	}))
	for _, c := range cost {
		if c > 0 {
			sums[c]--
		}
	}
	for sum, n := range sums {
		if n != 0 && sum != 0 {
			t.Errorf("%d keys more than there are have %d at the backend", n, sum)
		}
	}
	w.wantSum(want, "afterwards")
	t.Logf("%d passed, %d were refused, %d died; they cost %d", passed, refused, killed, want)
	must.Equal(t, refused > 0 && killed > 0 && passed >= requests/10, true, "the month shows enough")
}
