package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/internal/must"
	"weir/internal/nightly"
)

// A dollar is a budget in micro-dollars, of which a token costs one.
const (
	dollar          = 1_000_000
	ofInteractive   = 600_000
	ofBatch         = 100_000
	dollarInClasses = `{"namespace": "dollar", "backend": {"cluster": "weir", "timeout": "20s"}, "sync_rate": %s, "prices": {"models": {"of": {"m": {"input": 0, "output": 1}}}}, "rules": [{
		"name": "dollars", "key": [{"header": "x-user"}], "cost_on_response": "openai", "price": "models", "reserve": {"request_json": "max_tokens", "default": 1, "unread": "refuse"},
		"limits": [{"limit": 1000000, "window": "366d", "algorithm": "fixed_window"}],
		"classes": {"by": {"header": "x-class"}, "of": {"interactive": {"guaranteed": 0.6}, "batch": {"guaranteed": 0.1, "most": 0.5}}}}]}`
	largestCompletion = 20_000
)

// till is a model that adds up what its answers cost, before it tells.
type till struct {
	t     *testing.T
	spent atomic.Int64
}

func (m *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cost := must.Get(strconv.ParseInt(r.Header.Get("x-cost"), 10, 64))(m.t)
	_, _ = io.Copy(io.Discard, r.Body)
	must.AtMost(m.t, m.spent.Add(cost), dollar, "spent of a dollar")
	w.Header().Set("content-type", "text/event-stream")
	fmt.Fprint(w, streamChunk+"\n\n")
	_ = http.NewResponseController(w).Flush()
	if r.Header.Get("x-aborts") != "" {
		<-r.Context().Done() // the model goes on, unseen
		return
	}
	fmt.Fprintf(w, `data: {"model":"m","choices":[],"usage":{"prompt_tokens":0,"completion_tokens":%d,"total_tokens":%d}}`+"\n\ndata: [DONE]\n\n", cost, cost)
}

// buyer sends requests of a class, and knows how much of its part they may have taken.
type buyer struct {
	class  string
	mu     sync.Mutex
	may    int64 // taken by requests that have passed, or may still
	passed atomic.Int64
}

// buy sends a request that reserves most and costs cost, and reports whether it passed. An error is that of a proxy that is gone.
func (b *buyer) buy(ctx context.Context, client *http.Client, address string, most, cost int64, aborts bool) (passed bool, err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	body := fmt.Sprintf(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":%d}`, most)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return false, err
	}
	for name, value := range map[string]string{"content-type": "application/json", "x-user": "ann", "x-class": b.class, "x-cost": strconv.FormatInt(cost, 10)} {
		request.Header.Set(name, value)
	}
	if aborts {
		request.Header.Set("x-aborts", "1")
	}
	b.note(most)
	response, err := client.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests:
		b.note(-most)
		return false, nil
	default:
		return false, fmt.Errorf("status %d", response.StatusCode)
	}
	b.passed.Add(1)
	if aborts {
		_, err = io.ReadFull(response.Body, make([]byte, len(streamChunk)))
		return true, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return true, err
}

func (b *buyer) note(taken int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.may += taken
}

func (b *buyer) most() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.may
}

var usedOf = regexp.MustCompile(`(\d+)(?: of \d+)? used(?:, (\d+) leased)?`)

// Two classes buy from a model with a dollar, through gateways of which one is killed and started again, and clients leave their streams. No more than
// the dollar is spent, no class is refused while it may be below its part, and in the end all of the dollar is sold: each class has
// its part to the unit.
func TestDollarInClasses(t *testing.T) {
	onEachByNight(t, 5, func(t *testing.T, d driver) {
		for _, rate := range []string{"0", "0.2"} {
			t.Run("sync_rate "+rate, func(t *testing.T) { sellDollar(t, d, rate) })
		}
	})
}

func sellDollar(t *testing.T, d driver, rate string) {
	model := &till{t: t}
	backend := serve(t, "memory")
	all, addresses := nodes(t, d, 5, nodeConfig{configuration: fmt.Sprintf(dollarInClasses, rate), backend: backend, workers: 2, upstream: model, stopsHeadersOnly: true})
	victim, _ := all[0].(*envoyNode)
	classes := map[string]*buyer{"interactive": {class: "interactive"}, "batch": {class: "batch"}}
	parts := map[string]int64{"interactive": ofInteractive, "batch": ofBatch}
	var group sync.WaitGroup
	var sold, gone, again atomic.Int64
	due, back := make(chan struct{}), make(chan struct{})
	var once sync.Once
	kill := func() { once.Do(func() { close(due) }) }
	each := nightly.Or(60, 20)
	for i := range 10 {
		b, client, random := classes[[]string{"interactive", "batch"}[i%2]], client(t), rand.New(rand.NewPCG(55, uint64(i)))
		group.Go(func() {
			for turn := range each {
				if turn == each/10 {
					kill()
					<-back
				}
				most := 1 + random.Int64N(largestCompletion)
				at := random.IntN(len(addresses))
				address := addresses[at]
				if at == 0 && turn >= each/10 {
					address = all[0].url()
				}
				passed, err := b.buy(t.Context(), client, address, most, 1+random.Int64N(most), random.IntN(8) == 0)
				switch before := b.most(); {
				case err != nil && (at != 0 || victim == nil):
					t.Error(err)
				case err != nil:
					gone.Add(1) // what it reserved may be taken
				case passed:
					if sold.Add(1) == 30 {
						kill()
					}
					if at == 0 && turn >= each/10 {
						again.Add(1)
					}
				case rate == "0" && before+most <= parts[b.class]:
					t.Errorf("%s is refused %d, while it has %d of %d at most", b.class, most, before, parts[b.class])
				}
			}
		})
	}
	<-due
	if of, ok := d.(envoys); ok {
		of.restart(t, victim)
	}
	close(back)
	group.Wait()
	addresses[0] = all[0].url()
	must.AtLeast(t, again.Load(), 1, "passed at the proxy that was started again")
	for _, n := range all {
		n.idle(t)
	}
	own := client(t)
	// A stream that has ended gives back what it has not cost, a little later.
	if told := ""; !pushed.until(t, func() bool {
		for _, b := range classes {
			for _, most := range []int64{largestCompletion, 2_000, 200, 20, 2, 1} {
				for i := 0; ; i++ {
					passed, err := b.buy(t.Context(), own, addresses[i%len(addresses)], most, most, false)
					if must.OK(t, err); !passed {
						break
					}
				}
			}
		}
		sum, sumLeased := int64(0), int64(0)
		told = ""
		for _, part := range []string{"interactive", "batch", ""} {
			of, leased := used(t, backend, part)
			sum, sumLeased = sum+of, sumLeased+leased
			told += fmt.Sprintf("%s %d, ", cmp.Or(part, "both"), of)
		}
		told += fmt.Sprintf("in all %d, and %d leased", sum, sumLeased)
		// A killed proxy's leases are lost, however many they are. The others use theirs, or give them back.
		return sum == dollar || rate != "0" && (sum > dollar*9/10 || victim != nil && sum+sumLeased > dollar*9/10)
	}) {
		t.Errorf("%s", told)
	} else if t.Logf("%s; %d spent, %d requests passed of interactive and %d of batch, %d broke off with a proxy, %d passed after it was back", told, model.spent.Load(),
		classes["interactive"].passed.Load(), classes["batch"].passed.Load(), gone.Load(), again.Load()); rate == "0" && !strings.HasPrefix(told, "interactive 600000, batch 100000, both 300000,") {
		t.Error(told)
	}
}

// used is what the backend knows to be used of a part of the dollar, and what proxies had leased beside that.
func used(t *testing.T, backend, part string) (units, leased int64) {
	t.Helper()
	told := weir(t, backend, "counter", "get", "dollar", "dollars", "ann", part)
	found := usedOf.FindStringSubmatch(told)
	if found == nil {
		return 0, 0
	}
	return must.Get(strconv.ParseInt(found[1], 10, 64))(t), must.Get(strconv.ParseInt(cmp.Or(found[2], "0"), 10, 64))(t)
}
