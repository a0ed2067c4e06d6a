package filter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/usage"
	"weir/internal/wire"
)

// priced is a rule of a hundred million an hour, in which a model is free.
func priced(by, more string) string {
	return `{"headers": ["tokens"], "prices": {"models": {` + by + `"of": {"free": {"input": 0},
		"gpt-5": {"input": 1.25, "cached": 0.125, "output": 10}, "gpt-5-mini*": {"input": 0.25, "output": 2},
		"claude": {"input": 3, "cache_write": 3.75, "output": 15}, "*": {"input": 100}}}},
		"rules": [{"name": "dollars", "key": [{"header": "x-key"}], "cost_on_response": "auto", "price": "models"` + more + `,
		"limits": [{"limit": 100000000, "window": "1h", "algorithm": "fixed_window"}]}]}`
}

const reservesPrompt = `, "reserve": {"request_json": ["max_completion_tokens", "max_tokens"], "times": "n", "default": 100, "most": 4000, "unread": "most", "prompt": {"bytes_per_token": 4}}`

// taken returns how much a key has taken of the rule of priced.
func (v *fakeVM) taken(key string) (units int) {
	v.t.Helper()
	s := v.opened("x-key", key, ":path", "/model/free/converse", "x-model", "free")
	must.EqualOrEnd(v.t, s != nil, true, "it passes")
	v.respond(s, true)
	must.Get(fmt.Sscan(v.response["x-ratelimit-remaining-cost"], &units))(v.t)
	v.reset(s)
	return 100000000 - units
}

// A request of a tier costs the tier's prices, where the list has them. One that hides its tier costs the highest of its model.
func TestTiers(t *testing.T) {
	const answer = `"usage":{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1200}}`
	rule := strings.Replace(priced("", reservesPrompt), `"of": {`, `"of": {"service_tier=flex/gpt-5": {"input": 0.5, "output": 4}, "service_tier=priority/gpt-5*": {"input": 2, "output": 20},
		"service_tier=fast/claude": {"input": 7.5, "output": 40}, "own": {"input": 2, "output": 20}, "service_tier=default/own": {"input": 1.25, "output": 10},
		"above=1000/gpt-5": {"input": 9, "output": 90}, "above=999/claude": {"input": 6, "output": 22.5}, "above=999/service_tier=priority/gpt-5*": {"input": 4, "output": 30}, "above=20/gpt-5-mini*": {"input": 1, "output": 5},`, 1)
	for _, c := range []struct {
		body, answer string
		out, in      float64 // reserved
		costs        int
	}{
		{`{"max_tokens":50,"model":"gpt-5"}`, `{` + answer, 10, 1.25, 3250},
		{`{"max_tokens":50,"model":"gpt-5","service_tier":"default"}`, `{` + answer, 10, 1.25, 3250},
		{`{"max_tokens":50,"model":"gpt-5","service_tier":null}`, `{` + answer, 10, 1.25, 3250},
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{` + answer, 4, 0.5, 1300},
		{`{"service_tier":"fl\u0065x","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5-2025-08-07",` + answer, 4, 0.5, 1300},
		{`{"service_tier":"priority","max_tokens":50,"model":"gpt-5-2025-08-07"}`, `{"model":"gpt-5-2025-08-07",` + answer, 20, 2, 10000}, // a long prompt
		// The answer's tier counts.
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5","service_tier":"default",` + answer, 4, 0.5, 3250},
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"service_tier":"default",` + answer, 4, 0.5, 3250},
		{`{"service_tier":"priority","max_tokens":50,"model":"gpt-5"}`, `{"service_tier":"flex","model":"gpt-5-2025-08-07",` + answer, 20, 2, 1300},
		{`{"service_tier":"auto","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5","service_tier":"priority",` + answer, 10, 1.25, 10000},
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5","service_tier":"auto",` + answer, 4, 0.5, 1300},
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"model":"claude","service_tier":"standard",` + answer, 4, 0.5, 10500},
		{`{"max_tokens":50,"model":"alias"}`, `{"model":"gpt-5","service_tier":"flex",` + answer, 100, 100, 1300},
		{`{"service_tier":["flex"],"max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5","service_tier":"default",` + answer, 100, 100, 3250},
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5","service_tier":["default"],` + answer, 4, 0.5, 1300},
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"response":{"model":"gpt-5","service_tier":"default","usage":{"input_tokens":1000,"output_tokens":200}}}`, 4, 0.5, 3250},
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5","usage":{"service_tier":"standard","input_tokens":1000,"output_tokens":200}}`, 4, 0.5, 3250},
		// OpenAI's fast is priority for most models. Anthropic has prices of a speed.
		{`{"service_tier":"fast","max_tokens":50,"model":"gpt-5-2025-08-07"}`, `{"model":"gpt-5-2025-08-07","service_tier":"priority",` + answer, 20, 2, 10000},
		{`{"service_tier":"fast","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5","service_tier":"default",` + answer, 20, 2, 3250},
		{`{"service_tier":"fast","max_tokens":50,"model":"own"}`, `{"model":"own",` + answer, 20, 2, 6000},
		{`{"speed":"fast","max_tokens":50,"model":"claude"}`, `{"model":"claude","usage":{"speed":"fast","input_tokens":1000,"output_tokens":200,"service_tier":"standard"}}`, 40, 7.5, 15500},
		{`{"speed":"fast","max_tokens":50,"model":"claude"}`, `{"model":"claude","usage":{"input_tokens":1000,"output_tokens":200,"service_tier":"standard","speed":"standard"}}`, 40, 7.5, 10500},
		{`{"max_tokens":50,"model":"claude"}`, `{"message":{"model":"claude","usage":{"input_tokens":1000,"output_tokens":200,"service_tier":"standard","speed":"fast"}}}`, 15, 3.75, 15500},
		{`{"speed":"standard","max_tokens":50,"model":"claude"}`, `{` + answer, 15, 3.75, 10500},
		{`{"speed":"fast","speed":"standard","max_tokens":50,"model":"claude"}`, `{"model":"claude",` + answer, 100, 100, 15500},
		{`{"max_tokens":50,"model":"own"}`, `{"model":"own","service_tier":"priority",` + answer, 20, 2, 6000}, // of a project whose auto is priority
		{`{"max_tokens":50,"model":"own"}`, `{"model":"own","service_tier":"default",` + answer, 20, 2, 3250},
		{`{"max_tokens":50,"model":"claude"}`, `{` + answer, 15, 3.75, 10500},
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5-mini"}`, `{"model":"gpt-5-mini",` + answer, 2, 0.25, 2000},                                  // it has no such tier
		{`{"model":"gpt-5-mini","max_tokens":50,"x":"` + strings.Repeat("x", 50) + `"}`, `{"usage":{"prompt_tokens":20,"completion_tokens":10}}`, 5, 1, 25}, // reserves for a long one
		{`{"service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"model":"claude",` + answer, 4, 0.5, 10500},                                           // the dearer counts
		{`{"service_tier":"flex","max_tokens":50,"model":"alias"}`, `{"model":"gpt-5",` + answer, 100, 100, 1300},
		{`{"service_tier":"flex","service_tier":"priority","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5",` + answer, 100, 100, 10000},
		{`{"service_tier":"priority","Service_tier":"flex","max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5",` + answer, 100, 100, 10000},
		{`{"service_tier":["flex"],"max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5",` + answer, 100, 100, 10000},
		{`{"max_tokens":50,"model":"service_tier=flex/gpt-5"}`, `{"model":"service_tier=flex/gpt-5",` + answer, 100, 100, 120000},
		{`{"max_tokens":4000,"model":"gpt-5","service_tier":"flex","x":"` + strings.Repeat(" ", 32<<10) + `"}`, `{"model":"gpt-5",` + answer, 100, 100, 10000},
	} {
		v := newProxy(t).start(rule)
		s, _ := v.ask("x-key", "ann", "content-length", fmt.Sprint(len(c.body)))
		v.upload(s, true, c.body)
		tokens := 50.0
		if len(c.body) > 4000 {
			tokens = 4000
		}
		must.Equal(t, v.taken("ann"), int(tokens*c.out+float64((len(c.body)+3)/4)*c.in+0.99), "%.90s: reserved", c.body)
		v.answers(s, c.answer)
		must.Equal(t, v.taken("ann"), c.costs, "%.90s: taken", c.body)
	}
}

// The tier counts that a stream names beside its tokens. Requests of an API of batches have their own.
func TestTierOfStream(t *testing.T) {
	rule := strings.Replace(priced("", ""), `"of": {`, `"of": {"service_tier=flex/gpt-5": {"input": 0.5, "output": 4}, "service_tier=batch/gpt-5": {"input": 1, "output": 2},
		"batches": {"input": 1.25, "output": 10}, "service_tier=batch/batches": {"input": 1, "output": 2},`, 1)
	for _, c := range []struct {
		path, first, last string
		costs             int
	}{
		{"/v1/responses", `"flex"`, `"default"`, 3250}, {"/v1/responses", `"auto"`, `"flex"`, 1300}, {"/v1/responses", `"flex"`, `null`, 3250}, {"/v1/responses", `"auto"`, `"auto"`, 3250},
		{"/v1/batches/1?x", `"auto"`, `"auto"`, 1400}, {"/v1/messages/b%61tches", `"auto"`, `"auto"`, 1400}, {"/v1/batches2", `"auto"`, `"auto"`, 3250},
		{"/openai/deployments/batches/chat/completions", `"auto"`, `"auto"`, 3250}, {"/deployments//%62atches/x", `"auto"`, `"auto"`, 3250}, {"/models/x/batches", `"auto"`, `"auto"`, 1400},
		{"/v1/batches/%2e%2e/chat/completions", `"auto"`, `"auto"`, 3250}, {"/x/../v1/batches", `"auto"`, `"auto"`, 3250},
		{"/v1/batches/..%2fchat/completions", `"auto"`, `"auto"`, 3250}, {`/v1/batches/..\chat/completions`, `"auto"`, `"auto"`, 3250}, {"/v1/batches/..;x/chat/completions", `"auto"`, `"auto"`, 3250},
		{"/v1/batches/x%2F../../chat/completions", `"auto"`, `"auto"`, 3250}, {"/v1/batches/x%5c..%5C..%5Cchat/completions", `"auto"`, `"auto"`, 3250},
	} {
		v := newProxy(t).start(rule)
		s, _ := v.ask("x-key", "ann", ":path", c.path)
		v.upload(s, true, `{"model":"gpt-5"}`)
		v.respond(s, false, "content-type", "text/event-stream")
		v.bring(s, false, `data: {"response":{"model":"gpt-5-2025-08-07","service_tier":`+c.first+"}}\n\n")
		v.bring(s, true, `data: {"response":{"service_tier":`+c.last+`,"model":"gpt-5-2025-08-07","usage":{"input_tokens":1000,"output_tokens":200}}}`+"\n\n")
		v.reset(s)
		must.Equal(t, v.taken("ann"), c.costs, "%+v: taken", c)
	}
}

// Prices of a time of day count by the clock of the list's zone, over midnight and where that is changed. Requests under way
// keep theirs, and of several the highest counts.
func TestPricesOfTimes(t *testing.T) {
	list := `"zone": "Europe/Berlin", "of": {"time=22:30-02:30/gpt-5": {"input": 0.5, "output": 4}, "time=02:00-02:30/gpt-5": {"input": 0.75, "output": 1},
		"time=22:30-02:30/above=999/gpt-5": {"input": 2, "output": 4}, "time=5-7,12:00-13:00/gpt-5": {"input": 1, "output": 1}, "time=7-7,00:00-00:00/claude": {"input": 7},`
	v := newProxy(t).start(strings.Replace(priced("", ""), `"of": {`, list, 1))
	begin := func(at string) (s *stream, key string) {
		v.now = must.Get(time.Parse(time.RFC3339, at))(t).UnixNano()
		s, _ = v.ask("x-key", at, ":path", "/v1/chat/completions")
		v.upload(s, true, `{"model":"gpt-5"}`)
		return s, at
	}
	end := func(s *stream, key string, prompt, want int) {
		t.Helper()
		v.answers(s, fmt.Sprintf(`{"model":"gpt-5","usage":{"prompt_tokens":%d,"completion_tokens":100}}`, prompt))
		must.Equal(t, v.taken(key), want, "%s: taken", key)
	}
	const usual, low, dearer = 125 + 1000, 50 + 400, 75 + 400
	for at, want := range map[string]int{
		"2026-01-10T21:29:59Z": usual, "2026-01-10T21:30:00Z": low, "2026-01-10T22:59:59Z": low, "2026-01-10T23:00:00Z": low, "2026-01-11T00:59:59Z": low,
		"2026-01-11T01:00:00Z": dearer, "2026-01-11T01:29:59Z": dearer, "2026-01-11T01:30:00Z": usual,
		// Friday to Sunday
		"2026-01-08T11:30:00Z": usual, "2026-01-09T10:59:00Z": usual, "2026-01-09T11:00:00Z": 200, "2026-01-11T11:59:00Z": 200, "2026-01-12T11:30:00Z": usual,
		// The clock goes from 2 to 3 in March, and from 3 back to 2 in October.
		"2026-03-29T00:59:00Z": low, "2026-03-29T01:00:00Z": usual, "2026-03-29T20:29:00Z": usual, "2026-03-29T20:30:00Z": low,
		"2026-10-25T00:00:00Z": dearer, "2026-10-25T00:30:00Z": usual, "2026-10-25T01:00:00Z": dearer, "2026-10-25T01:30:00Z": usual,
	} {
		s, key := begin(at)
		end(s, key, 100, want)
	}
	s, key := begin("2026-01-12T01:29:59Z")
	v.now += 2 * second
	end(s, key, 100, dearer)
	s, key = begin("2026-01-12T22:00:00Z")
	end(s, key, 1000, 2000+400)
	s, key = begin("2026-01-13T12:00:00Z")
	end(s, key, 1000, 1250+1000)
}

// A tier may have prices at a time of day alone. The first request of that time is read for it.
func TestTierOfTime(t *testing.T) {
	v := newProxy(t).start(strings.Replace(priced("", ""), `"of": {`, `"of": {"time=22:00-23:00/service_tier=flex/gpt-5": {"input": 1},`, 1))
	for at, want := range map[string]int{"2026-01-10T22:30:00Z": 2, "2026-01-10T23:00:00Z": 12} {
		v.now = must.Get(time.Parse(time.RFC3339, at))(t).UnixNano()
		s, _ := v.ask("x-key", at, ":path", "/v1/chat/completions")
		v.upload(s, true, `{"service_tier":"flex","model":"gpt-5"}`)
		v.answers(s, `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
		must.Equal(t, v.taken(at), want, "%s: taken", at)
	}
}

// Requests reserve what they may cost at most by their model's prices, and cost what their answers say.
func TestPrices(t *testing.T) {
	const answer = `"usage":{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1200,"prompt_tokens_details":{"cached_tokens":400}}}`
	const ofMini, ofGPT, ofClaude, ofOther, ofMost = 0.25, 1.25, 3.75, 100, 100 // what goes into a model
	for _, c := range []struct {
		name, by, path, body, answer string
		tokens                       int // reserved for what comes out
		out, in                      float64
		costs                        int
		unknown                      uint64
	}{
		{"model", "", "", `{"max_tokens":50,"model":"gpt-5"}`, `{` + answer, 50, 10, ofGPT, 2800, 0},
		{"several answers", "", "", `{"max_tokens":50,"n":3,"model":"gpt-5"}`, `{` + answer, 150, 10, ofGPT, 2800, 0},
		{"default", "", "", `{"model":"gpt-5"}`, `{` + answer, 100, 10, ofGPT, 2800, 0},
		{"beginning", "", "", `{"max_tokens":50,"model":"gpt-5-mini-2025-08-07"}`, `{` + answer, 50, 2, ofMini, 650, 0},
		{"other", "", "", `{"max_tokens":50,"model":"new"}`, `{` + answer, 50, 100, ofOther, 120000, 1},
		{"other, whose answer is known", "", "", `{"max_tokens":50,"model":"alias"}`, `{"model":"gpt-5",` + answer, 50, 100, ofOther, 2800, 1},
		{"none", "", "", `{"max_tokens":50}`, `{"model":"gpt-5",` + answer, 50, 100, ofOther, 2800, 0},
		{"twice", "", "", `{"max_tokens":50,"model":"gpt-5-mini","model":"gpt-5"}`, `{"model":"gpt-5",` + answer, 50, 100, ofMost, 2800, 0},
		{"twice, in capitals", "", "", `{"max_tokens":50,"model":"gpt-5-mini","MODEL":"gpt-5"}`, `{"model":"gpt-5",` + answer, 50, 100, ofMost, 2800, 0},
		{"twice, in an answer that does not tell", "", "", `{"max_tokens":50,"model":"gpt-5-mini","model":"gpt-5"}`, `{` + answer, 50, 100, ofMost, 120000, 0},
		{"no text", "", "", `{"max_tokens":50,"model":["gpt-5"]}`, `{"model":"gpt-5",` + answer, 50, 100, ofMost, 2800, 0},
		{"too long", "", "", `{"max_tokens":50,"model":"gpt-5-mini","x":"` + strings.Repeat(" ", 32<<10) + `"}`, `{"model":"gpt-5-mini",` + answer, 4000, 100, ofMost, 650, 0},
		{"path of Gemini", "", "/v1beta/models/gpt-5:generateContent", `{"max_tokens":50,"model":"new"}`, `{"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":200}}`, 50, 10, ofGPT, 3250, 0},
		{"path of Azure", "", "/openai/deployments/claude/chat/completions", `{"max_tokens":50}`, `{"usage":{"input_tokens":1000,"cache_creation_input_tokens":100,"output_tokens":10}}`, 50, 15, ofClaude, 3525, 0},
		{"path of Bedrock", "", "/model/gpt%2D5/converse", `{"max_tokens":50}`, `{"usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2}}`, 50, 10, ofGPT, 12, 0}, // 11.25
		{"path of Gemini with an escape", "", "/v1beta/models/gpt-5%3AgenerateContent", `{"max_tokens":50,"model":"free"}`, `{` + answer, 50, 10, ofGPT, 2800, 0},
		{"path of Gemini with more escapes", "", "/v1beta/%6dodels/%67pt-5%3agenerateContent", `{"max_tokens":50,"model":"free"}`, `{` + answer, 50, 10, ofGPT, 2800, 0},
		{"path of an engine", "", "/v1/engines/gpt-5/completions", `{"max_tokens":50,"model":"free"}`, `{` + answer, 50, 10, ofGPT, 2800, 0},
		{"path beside another model", "", "/model/gpt-5-mini/converse", `{"max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5",` + answer, 50, 2, ofMini, 2800, 0},
		{"answer of a dearer model", "", "", `{"max_tokens":50,"model":"gpt-5-mini"}`, `{"model":"gpt-5",` + answer, 50, 2, ofMini, 2800, 0},
		{"answer of a cheaper model", "", "", `{"max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5-mini",` + answer, 50, 10, ofGPT, 2800, 0},
		{"answer of a version", "", "", `{"max_tokens":50,"model":"gpt-5"}`, `{"model":"gpt-5-2025-08-07",` + answer, 50, 10, ofGPT, 2800, 0},
		{"path without a model", "", "/models/", `{"max_tokens":50,"model":"gpt-5"}`, `{` + answer, 50, 10, ofGPT, 2800, 0},
		{"header", `"by": {"header": "x-model"}, `, "", `{"max_tokens":50,"model":"new"}`, `{` + answer, 50, 10, ofGPT, 2800, 0},
		{"json", `"by": {"request_json": "x.m"}, `, "/model/new/converse", `{"max_tokens":50,"x":{"m":"gpt-5"}}`, `{` + answer, 50, 10, ofGPT, 2800 + 2*10000, 0}, // with that of taken's own requests
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newProxy(t).start(priced(c.by, reservesPrompt))
			headers := []string{"x-key", "ann", "x-model", "gpt-5", "content-length", fmt.Sprint(len(c.body))}
			if c.path != "" {
				headers = append(headers, ":path", c.path)
			}
			s, _ := v.ask(headers...)
			v.upload(s, true, c.body)
			want := int(float64(c.tokens)*c.out + float64((len(c.body)+3)/4)*c.in + 0.99)
			if got := v.taken("ann"); c.by == "" && got != want {
				t.Errorf("%d reserved, want %d", got, want)
			}
			v.answers(s, c.answer)
			must.Equal(t, v.count("unknown_models_total"), c.unknown, "unknown models")
			must.Equal(t, v.taken("ann"), c.costs, "costs")
		})
	}
}

// Without a reservation a request costs what its answer does, and nothing besides.
func TestPricesWithoutReservation(t *testing.T) {
	v := newProxy(t).start(strings.Replace(priced("", ""), `"of": {`, `"of": {"above=1000/gpt-5": {"input": 9, "output": 90},`, 1))
	s, _ := v.ask("x-key", "ann")
	v.upload(s, true, `{"model":"gpt-5"}`)
	v.respond(s, false, "content-type", "text/event-stream")
	v.bring(s, false, "data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n")
	v.bring(s, true, "data: [DONE]\n\n")
	v.reset(s)
	must.Equal(t, v.taken("ann"), 14, "costs")
	s, _ = v.ask("x-key", "ann", ":path", "/model/gpt-5/invoke")
	v.finish(s, "x-amzn-bedrock-input-token-count", "100", "x-amzn-bedrock-output-token-count", "10")
	must.Equal(t, v.taken("ann"), 14+225, "costs")
	for input, costs := range map[string]int{"700": 1013, "701": 9909} { // beside 300 of a cache, which are part of a long prompt
		s, _ = v.ask("x-key", input, ":path", "/model/gpt-5/invoke")
		v.finish(s, "x-amzn-bedrock-input-token-count", input, "x-amzn-bedrock-cache-read-input-token-count", "300", "x-amzn-bedrock-output-token-count", "10")
		must.Equal(t, v.taken(input), costs, "%s tokens: costs", input)
	}
}

// No stream keeps more of a model's name than a list may have.
func TestNamesAreBounded(t *testing.T) {
	v := newProxy(t).start(strings.Replace(priced("", ""), `"of": {`, `"of": {"service_tier=flex/gpt-5": {"input": 0.5, "output": 4},`, 1))
	s := v.open("x-key", "ann", ":path", "/models/"+strings.Repeat("m", 50_000)+":generateContent")
	must.Between(t, s.Names(), 1, 2*usage.MaxModel, "bytes that are kept for names")
}

// The headers say what is left in the unit of the prices.
func TestHeadersInMoney(t *testing.T) {
	v := newProxy(t).start(priced(`"unit": "millicents", `, `, "reserve": 7`))
	s := v.open("x-key", "ann", ":path", "/model/gpt-5/converse")
	v.respond(s, true)
	for name, want := range map[string]string{
		"x-ratelimit-limit-cost": "100000000", "x-ratelimit-remaining-cost": "99999930", "x-ratelimit-reset-cost": "1h0m0s",
		"x-ratelimit-cost-unit": "millicents", "x-ratelimit-limit-tokens": "",
	} {
		must.Equal(t, v.response[name], want, "%s", name)
	}
}

// A stream that may be cut costs what its events stand for, in money.
func TestCutInMoney(t *testing.T) {
	configuration := strings.ReplaceAll(priced("", `, "reserve": 1, "cut": true`), "100000000", "1000")
	v := newProxy(t).start(configuration)
	s := v.open("x-key", "ann", ":path", "/openai/deployments/gpt-5/chat/completions")
	v.respond(s, false, "content-type", "text/event-stream")
	events := 0
	for ; events < 200; events++ {
		if got := v.pass(s, false, chat); got != chat {
			break
		}
	}
	must.Equal(t, events, 100, "events before it is cut, of 10 each, as the next is above the limit")
}

// Prices that are set at run time are known to all workers of all nodes within a sync_rate, and those of the
// configuration count again when they are gone. A request under way costs what it would have cost.
func TestPricesOfTheBackend(t *testing.T) {
	w := joined(t, 2, 2, `{"backend": {"cluster": "b"}, "sync_rate": 1, `+priced("", "")[1:])
	n := 0
	begin := func(v *fakeVM, model string) (s *stream, cost func() int) {
		n++
		key := fmt.Sprint("key ", n)
		s = v.opened("x-key", key, ":path", "/model/"+model+"/converse")
		return s, func() int {
			v.answers(s, `{"usage":{"inputTokens":1000,"outputTokens":100}}`)
			return v.taken(key)
		}
	}
	costs := func(v *fakeVM, model string) int {
		_, cost := begin(v, model)
		return cost()
	}
	_, before := begin(w.vms[0], "gpt-5")
	price := func(list, model string, input, output uint64) wire.Price {
		return wire.Price{List: list, Model: model, Kinds: []wire.PriceOfKind{{Kind: 1, Millionths: input}, {Kind: 4, Millionths: output}}}
	}
	w.price(price("models", "gpt-5", 2_500_000, 30_000_000), price("models", "new", 1_000_000, 1_000_000), price("others", "claude", 1, 1))
	for i, v := range w.vms {
		must.Equal(t, costs(v, "gpt-5"), 2500+3000, "worker %d", i)
		must.Equal(t, costs(v, "new"), 1100, "worker %d: for a new model", i)
		must.Equal(t, costs(v, "claude"), 3000+1500, "worker %d: for a model of another list", i)
	}
	must.Equal(t, before(), 1250+1000, "a request under way costs")
	known := w.vms[0].plugin.Prices(0)
	w.price(price("models", "gpt-5", 2_500_000, 30_000_000), price("models", "new", 1_000_000, 1_000_000), price("others", "gpt-5", 1, 1))
	must.Equal(t, w.vms[0].plugin.Prices(0), known, "a list without other prices has them made anew")
	w.price()
	for i, v := range w.vms {
		must.Equal(t, costs(v, "gpt-5"), 1250+1000, "worker %d: afterwards", i)
	}
}
