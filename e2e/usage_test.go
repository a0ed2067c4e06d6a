package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/server"
)

// spent is a rule of money that reports the usage of its keys.
const spent = `{"namespace": "spent", "backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0.2,
	"prices": {"models": {"of": {"small": {"input": 0.15, "output": 0.6}, "large*": {"input": 1.25, "output": 10.000001}, "*": {"input": 3, "output": 15}}}},
	"rules": [{"name": "dollars", "key": [{"header": "x-key"}], "reveal": "plain", "cost_on_response": "openai", "price": "models",
		"reserve": {"request_json": "max_tokens", "default": 100, "prompt": {"bytes_per_token": 4}},
		"limits": [{"limit": 900000000, "window": "month", "algorithm": "fixed_window", "zone": "UTC"}]}]}`

// millionths has the prices of a prompt's tokens and an answer's tokens, by the models' entries in
// the list.
var millionths = map[string][2]int64{"small": {150_000, 600_000}, "large*": {1_250_000, 10_000_001}, "*": {3_000_000, 15_000_000}}

// Two nodes charge clients for the tokens of models, while the backend is killed and comes back,
// and one node gets other limits. As usage, the backend reports the sums that clients were charged,
// to a millionth, by key and model.
func TestUsage(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		eachStore(t, d, func(t *testing.T, start func(t *testing.T) store) {
			if s := start(t); !s.forgets() {
				usage(t, d, s)
			}
		})
	})
}

func usage(t *testing.T, d driver, s store) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var asked struct {
			Model   string `json:"model"`
			In, Out int64
		}
		if err := json.Unmarshal(body, &asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"model": %q, "usage": {"prompt_tokens": %d, "completion_tokens": %d, "total_tokens": %d}}`, asked.Model, asked.In, asked.Out, asked.In+asked.Out)
	})
	served, backend := serveAt(t, steadyAddress(t), s.url)
	started, addresses := nodes(t, d, 2, nodeConfig{configuration: spent, backend: backend, workers: 2, upstream: upstream, stopsHeadersOnly: true})
	var mu sync.Mutex
	want, random := map[string]int64{}, rand.New(rand.NewPCG(1, 32))
	entries := map[string]string{"small": "small", "large-2": "large*", "large": "large*", "new": "*"}
	models := []string{"small", "large-2", "large", "new"}
	ask := func(node int, key, model string, in, out int64) {
		r, err := send(t, envoytest.Client, addresses[node], ":method", "POST", ":path", "/v1/chat/completions", "content-type", "application/json", "x-key", key,
			":body", fmt.Sprintf(`{"model": %q, "max_tokens": 200, "in": %d, "out": %d}`, model, in, out))
		if err != nil || r.status != http.StatusOK {
			t.Errorf("status %d, %v", r.status, err)
			return
		}
		price := millionths[entries[model]]
		mu.Lock()
		defer mu.Unlock()
		want[key+" "+entries[model]] += (in*price[0] + out*price[1] + 999_999) / 1_000_000
	}
	round := func() {
		var group sync.WaitGroup
		for range 4 {
			var asked []func()
			for range 25 {
				node, key, model := random.IntN(2), fmt.Sprint("key ", random.IntN(7)), models[random.IntN(len(models))]
				in, out := random.Int64N(1000), random.Int64N(200)
				asked = append(asked, func() { ask(node, key, model, in, out) })
			}
			group.Go(func() {
				for _, ask := range asked {
					ask()
				}
			})
		}
		group.Wait()
	}
	round()
	served.Kill(t)
	round()
	_, backend = serveAt(t, backend, s.url)
	round()
	must.OK(t, started[0].configure(strings.Replace(spent, `"limit": 900000000`, `"limit": 800000000`, 1)))
	round()
	if s.down != nil {
		s.down()
		round()
		s.back()
	}
	round()
	var got map[string]int64
	deadline := time.Now().Add(time.Minute)
	for {
		// The test may begin in one month and end in the next.
		months := time.Now().UTC().AddDate(0, 0, -1).Format("2006-01") + ".." + time.Now().UTC().Format("2006-01")
		var told server.Usage
		must.OK(t, json.Unmarshal([]byte(weir(t, backend, "usage", "spent", "dollars", "--by", "key,model", "--month", months, "--json")), &told))
		got = map[string]int64{}
		for _, r := range told.Rows {
			key := "others"
			if len(r.Values) > 0 {
				key = r.Values[0].Text
			}
			got[key+" "+r.Model] += r.Hits
		}
		if maps.Equal(got, want) || time.Now().After(deadline) {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	must.Same(t, got, want, "used")
	sum := int64(0)
	for _, n := range want {
		sum += n
	}
	if cost := weir(t, backend, "usage", "spent", "--by", "rule", "--csv", "--month", time.Now().UTC().Format("2006-01")); !strings.Contains(cost, ",dollars,,,,"+strconv.FormatInt(sum, 10)+",") && time.Now().UTC().Day() > 1 {
		t.Errorf("got %s, want %d", cost, sum)
	}
}
