package usage_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/jsonpath"
	"weir/internal/must"
	"weir/internal/usage"
)

func field(weight uint64, paths ...string) usage.Field {
	f := usage.Field{Weight: weight * usage.Parts}
	for _, path := range paths {
		p, err := jsonpath.Compile(path)
		if err != nil {
			panic(err)
		}
		f.Paths = append(f.Paths, p)
	}
	return f
}

func fields(list ...usage.Field) *usage.Fields { return usage.NewFields(list) }

// costOf reads a body in pieces whose sizes come from a seed; 0 means 1 byte. It counts events if
// the seed is even.
func costOf(r *usage.Reader, fields *usage.Fields, format usage.Format, body []byte, seed uint64, priced ...*usage.Rates) (uint64, bool) {
	var rates *usage.Rates
	if len(priced) > 0 {
		rates = priced[0]
	}
	random := rand.New(rand.NewPCG(seed, 1))
	if r.Reset(fields, format, rates); seed%2 == 0 {
		r.CountEvents()
	}
	for len(body) > 0 {
		n := 1
		if seed > 0 {
			n = min(1+random.IntN(1<<random.IntN(10)), len(body))
		}
		// The caller may modify a piece afterwards.
		piece := bytes.Clone(body[:n])
		r.Feed(piece)
		clear(piece)
		body = body[n:]
	}
	return r.Cost()
}

// message returns a message of an Amazon event stream.
func message(payload string, headers ...string) string {
	var h []byte
	for i := 0; i+1 < len(headers); i += 2 {
		h = append(append(h, byte(len(headers[i]))), headers[i]...)
		h = append(binary.BigEndian.AppendUint16(append(h, 7), uint16(len(headers[i+1]))), headers[i+1]...)
	}
	m := binary.BigEndian.AppendUint32(nil, uint32(16+len(h)+len(payload)))
	m = binary.BigEndian.AppendUint32(m, uint32(len(h)))
	m = binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m))
	m = append(append(m, h...), payload...)
	return string(binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m)))
}

func TestCost(t *testing.T) {
	t.Parallel()
	total := fields(field(1, "usage.total"))
	sum := fields(field(1, "usage.in"), field(4, "usage.out"))
	either := fields(field(1, "message.usage.in", "usage.in"), field(1, "usage.out"))
	const none = ^uint64(0)
	for _, c := range []struct {
		fields *usage.Fields
		format usage.Format
		body   string
		want   uint64
	}{
		{total, usage.JSON, `{"usage":{"total":42}}`, 42},
		{total, usage.JSON, ` {"usage" : {"total" : "42"}} `, 42},
		{total, usage.JSON, `{"usage":{"total":42.00}}`, 42},
		{total, usage.JSON, `{"usage":{"total":0}}`, 0},
		{total, usage.JSON, `{"usage":{"total":999999999999999}}`, 999999999999999},
		{total, usage.JSON, `{"usage":{"total":1000000000000000}}`, none},
		{total, usage.JSON, `{"usage":{"total":99999999999999999999999999}}`, none},
		{total, usage.JSON, `{"usage":{"total":-1}}`, none},
		{total, usage.JSON, `{"usage":{"total":1.5}}`, none},
		{total, usage.JSON, `{"usage":{"total":1e3}}`, 1000},
		{total, usage.JSON, `{"usage":{"total":1e15}}`, none},
		{total, usage.JSON, `{"usage":{"total":15e-1}}`, none},
		{total, usage.JSON, `{"usage":{"total":"1."}}`, none},
		{total, usage.JSON, `{"usage":{"total":""}}`, none},
		{total, usage.JSON, `{"usage":{"total":".0"}}`, none},
		{total, usage.JSON, `{"usage":{"total":true}}`, none},
		{total, usage.JSON, `{"usage":{"total":{}}}`, none},
		{total, usage.JSON, `{"usage":null}`, none},
		{total, usage.JSON, `{"usage":{"total":42`, none},
		{total, usage.JSON, ``, none},
		{total, usage.JSON, `oops`, none},
		{total, usage.Unreadable, `{"usage":{"total":42}}`, none},
		{total, usage.JSON, `[{"usage":{"total":1}},{"usage":{"total":2}}]`, 2},
		{total, usage.JSON, "[{\"usage\":{\"total\":7}}\n,\r\n{\"x\":\"]}\\\",{[\"}]", 7},
		{fields(field(1, "1.total")), usage.JSON, `[{"total":1},{"total":2}]`, 2},
		{sum, usage.JSON, `{"usage":{"in":10,"out":3}}`, 22},
		{sum, usage.JSON, `{"usage":{"in":10}}`, 10},
		{sum, usage.JSON, `{"usage":{"in":10,"out":-3}}`, none},
		{sum, usage.JSON, `{"usage":{"in":10,"out":500000000000000}}`, none},
		{either, usage.Events, "data: {\"message\":{\"usage\":{\"in\":7}}}\n\ndata: {\"usage\":{\"out\":5}}\n\n", 12},
		{either, usage.Events, "data: {\"message\":{\"usage\":{\"in\":7}}}\n\ndata: {\"usage\":{\"in\":9,\"out\":5}}\n\n", 14},
		{total, usage.Events, "data: {\"usage\":{\"total\":1}}\n\ndata: {\"usage\":{\"total\":5}}\n\ndata: [DONE]\n\n", 5},
		{total, usage.Events, "data:{\"usage\":\r\ndata:{\"total\":\rdata: 6}}\r\r", 6},
		{total, usage.Events, ": a comment\nid: 1\nevent: data\ndatax: {\"usage\":{\"total\":9}}\ndata\nretry: 3\ndata: {\"usage\":{\"total\":8}}\n\n", 8},
		{total, usage.Events, "\ufeffdata: {\"usage\":{\"total\":3}}\n\n", 3},
		{total, usage.Events, "\xef\xbbdata: {\"usage\":{\"total\":3}}\n\n", none},
		{total, usage.Events, " data: {\"usage\":{\"total\":3}}\n\n", none},
		{total, usage.Events, "data: {\"usage\":{\"total\":-3}}\n\ndata: {\"usage\":{\"total\":4}}\n\n", 4},
		{total, usage.Events, "data: {\"usage\":{\"total\":4}}\n\ndata: {\"usage\":{\"total\":-3}}\n\n", none},
		{total, usage.Events, "data: {\"usage\":{\"total\":4}}\n\ndata: {\"usage\":null}\n\n", 4},
		{total, usage.Events, "data: {\"usage\":{\"total\":4}}\n\ndata: {\"usage\":{\"total\":5}", 5},
		{total, usage.Events, "data: {\"usage\":{\"total\":4}}\n\ndata: {\"usage\":{\"total\":5", 4},
		{total, usage.Events, "data: {\"us\\u0061ge\":{\"total\":8}}\n\n", 8},
		{total, usage.Events, "data: {\"a\":1,\ndata: \"usage\":{\"total\":8}}\n\n", 8},
		{total, usage.Lines, "{\"usage\":{\"total\":1}}\n{\"x\":2}\n{\"usage\":{\"total\":3}}", 3},
		{total, usage.AmazonEvents, message(`{"usage":{"total":5}}`, ":event-type", "metadata") + message(`{"p":"x"}`), 5},
		{total, usage.AmazonEvents, message(``) + message(`{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(`{"usage":{"total":6}}`))+`","p":"abc"}`), 6},
		{total, usage.AmazonEvents, message(`{"bytes":"` + base64.StdEncoding.EncodeToString([]byte(`{"usage":{"total":6},"x":"`+strings.Repeat("x", 2000))) + `%"}`), 6},
		{total, usage.AmazonEvents, message(`{"bytes":"%%%"}`) + message(`{"usage":{"total":7}}`), 7},
		{total, usage.AmazonEvents, "\x00\x00\x00\x0f\x00\x00\x00\x00abcd" + message(`{"usage":{"total":7}}`), none},
		{total, usage.AmazonEvents, "\x00\x00\x00\x20\x00\x00\x00\x11abcd" + message(`{"usage":{"total":7}}`), none},
	} {
		var r usage.Reader
		for seed := range uint64(20) {
			got, found := costOf(&r, c.fields, c.format, []byte(c.body), seed)
			if found != (c.want != none) || found && got != c.want {
				t.Errorf("%q, seed %d: %d, %t, want %d", c.body, seed, got, found, c.want)
			}
		}
	}
}

func TestFormatOf(t *testing.T) {
	t.Parallel()
	for mediaType, want := range map[string]usage.Format{
		"application/json": usage.JSON, "Application/JSON; charset=utf-8": usage.JSON, "application/problem+json": usage.JSON, "application/json\t": usage.JSON,
		"text/event-stream": usage.Events, "text/event-stream;charset=utf-8": usage.Events, "application/x-ndjson": usage.Lines,
		"application/vnd.amazon.eventstream": usage.AmazonEvents, "text/html": usage.Unreadable, "": usage.Unreadable, "+json": usage.Unreadable,
	} {
		must.Equal(t, usage.FormatOf([]byte(mediaType)), want, "%q is of form", mediaType)
	}
}

// After a larger body, and a body that ended anywhere, a reader reads the next body like a new
// reader, and allocates nothing.
func TestReaderIsUsedAgain(t *testing.T) {
	var r usage.Reader
	many := fields(field(1, "a", "b"), field(1, "c.d"), field(2, "e"))
	single := fields(field(1, "usage.total"))
	text := `{"usage":{"total":5}}`
	for format, body := range map[usage.Format][]byte{usage.Events: []byte(events(text)), usage.AmazonEvents: []byte(chunk(text))} {
		for end := range body {
			costOf(&r, many, format, body[:end], 3)
			if got, found := costOf(&r, single, format, body, 3); got != 5 || !found {
				t.Fatalf("format %d, after %d bytes: %d, %t", format, end, got, found)
			}
		}
		must.Equal(t, testing.AllocsPerRun(100, func() {
			r.Reset(many, usage.JSON, nil)
			r.Feed(body)
			r.Reset(single, format, nil)
			r.Feed(body)
		}), 0, "format %d: allocations", format)
	}
}

// wholeEvents returns the data of a stream's events, by the standard's own steps. It includes the
// last event even without an empty line.
func wholeEvents(body []byte) (texts [][]byte) {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	body = bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	var data []byte
	for len(body) > 0 {
		line, rest, whole := bytes.Cut(body, []byte("\n"))
		if body = rest; len(line) == 0 {
			texts, data = append(texts, data), nil
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if data = append(data, bytes.TrimPrefix(value, []byte(" "))...); whole {
			data = append(data, '\n')
		}
	}
	return append(texts, data)
}

// restOf returns the number of bytes after the last event of a stream.
func restOf(body []byte) int {
	end, start := 0, len(body)-len(bytes.TrimPrefix(body, []byte("\ufeff")))
	for at := start; at < len(body); at++ {
		if body[at] != '\n' && body[at] != '\r' {
			continue
		}
		empty := at == start
		if body[at] == '\r' && at+1 < len(body) && body[at+1] == '\n' {
			at++
		}
		if start = at + 1; empty {
			end = start
		}
	}
	return len(body) - end
}

// Events with an object and without a number are counted as untold.
func TestUntold(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]uint64{
		"": 0, "data: {}": 0, "data: {}\n\n": 1, "data:{}\r\n\r\ndata:  {}\r\n\r\n": 2, "data: \t {}\n\n": 1, "data:\ndata:   {}\n\n": 1, "data: [DONE]\n\n": 0, "data: 5\n\ndata\n\n": 0,
		": {}\n\nevent: {}\n\n\n": 0, "data: {}\n\ndata: {\"n\":7}\n\n": 0, "data: {}\n\ndata: {\"n\":7}\n\ndata: {\"n\":null}\n\n": 1,
		"data: {\ndata: }\n\ndata: {\"n\":-1}\n\n": 2,
	} {
		var r usage.Reader
		for seed := range uint64(5) {
			costOf(&r, number, usage.Events, []byte(body), 2*seed)
			must.Equal(t, r.Untold(), want, "%q", body)
		}
	}
}

// Each ending is a valid event of its provider.
func TestEndings(t *testing.T) {
	t.Parallel()
	for _, p := range usage.Presets {
		if p.Name == usage.Auto {
			continue // it has the ending of the provider that the request is for
		}
		must.Equal(t, p.Ending == usage.NoEnding, p.Name == "bedrock" || p.Name == "ollama", "%s has the ending %d", p.Name, p.Ending)
		fields := fieldsOf(t, &p, false)
		for _, before := range []string{"", "event: x\ndata: {}\n\n"} {
			var r usage.Reader
			costOf(&r, fields, usage.Events, []byte(before), 1)
			ending := r.AppendError(r.AppendEnding(nil, p.Ending), p.Ending)
			r.Feed(ending)
			must.Equal(t, r.Rest(), 0, "%s: bytes behind the event %q", p.Name, ending)
			for _, text := range wholeEvents(ending) {
				if text = bytes.TrimSpace(text); len(text) > 0 && string(text) != "[DONE]" && !json.Valid(text) {
					t.Errorf("%s: %q is no JSON", p.Name, text)
				}
			}
		}
	}
}

// Pieces that end anywhere give the same result as a reader that splits the whole body by the
// standard, and reads each text alone.
func FuzzPieces(f *testing.F) {
	for _, body := range []string{
		"data: {\"usage\":{\"total\":1}}\n\ndata: [DONE]\n\n", "data:{\"usage\":\r\ndata:{\"total\":\rdata: 6}}\r\r", "\ufeffdata\n:\n\n", "[{\"usage\":{\"total\":7}}]",
		"{\"usage\":{\"total\":1}}\n{\"x\":2}", "data: {\"u\":5,\"usage\":{\"total\":1},\"\\u006f\":2}\n\n", message(`{"usage":{"total":5}}`),
	} {
		for format := range 5 {
			f.Add([]byte(body), uint64(7), byte(format))
		}
	}
	list := []usage.Field{field(1, "usage.total", "u"), field(3, "o")}
	of := fields(list...)
	var r, whole usage.Reader
	f.Fuzz(func(t *testing.T, body []byte, seed uint64, format byte) {
		form := usage.Format(format % 5)
		got, found := costOf(&r, of, form, body, seed)
		if again, foundAgain := costOf(&whole, of, form, body, 0); got != again || found != foundAgain {
			t.Fatalf("%d, %t in pieces of seed %d, and %d, %t in pieces of a byte", got, found, seed, again, foundAgain)
		}
		if untold, again := r.Untold(), whole.Untold(); seed%2 == 0 && untold != again {
			t.Fatalf("%d events tell nothing in pieces of seed %d, and %d in pieces of a byte", untold, seed, again)
		}
		if want := restOf(body); form == usage.Events && (r.Rest() != want || whole.Rest() != want) {
			t.Fatalf("%d bytes behind an event in pieces of seed %d, %d in pieces of a byte, want %d", r.Rest(), seed, whole.Rest(), want)
		}
		var texts [][]byte
		switch form {
		case usage.Events:
			texts = wholeEvents(body)
		case usage.Lines:
			texts = bytes.Split(body, []byte("\n"))
			for i := range len(texts) - 1 {
				texts[i] = append(bytes.Clone(texts[i]), '\n')
			}
		default:
			return
		}
		want, wantFound := sumOf(&whole, list, texts)
		if got != want || found != wantFound {
			t.Fatalf("%d, %t in pieces of seed %d, want %d, %t of %q", got, found, seed, want, wantFound, texts)
		}
	})
}

// sumOf reads each text alone, with one path after the other.
func sumOf(r *usage.Reader, fields []usage.Field, texts [][]byte) (sum uint64, found bool) {
	for _, f := range fields {
		var last uint64
		known, absurd := false, false
		for _, text := range texts {
			for _, path := range f.Paths {
				var reader jsonpath.Reader
				reader.Reset(path)
				if !reader.Feed(text) {
					continue
				}
				switch value, kind := reader.Value(); kind {
				case jsonpath.Missing, jsonpath.Null, jsonpath.Malformed:
				default:
					quoted := `{"n":` + string(value) + `}`
					if kind == jsonpath.String {
						quoted = `{"n":"` + string(value) + `"}`
					}
					r.Reset(number, usage.JSON, nil)
					if kind == jsonpath.Number || kind == jsonpath.String && !bytes.ContainsAny(value, "\"\\") {
						r.Feed([]byte(quoted))
					}
					last, known = r.Cost()
					absurd = !known
				}
			}
		}
		if absurd {
			return 0, false
		}
		if known {
			weight := f.Weight / usage.Parts
			if last > (usage.Most-sum)/weight {
				return 0, false
			}
			sum, found = sum+last*weight, true
		}
	}
	return sum, found
}

var number = fields(field(1, "n"))

// Each preset reads the answers in the provider's reference.
func TestPresets(t *testing.T) {
	t.Parallel()
	presets := map[string]*usage.Fields{}
	for _, p := range usage.Presets {
		presets[p.Name] = fieldsOf(t, &p, false)
	}
	for _, c := range []struct {
		preset, mediaType string
		body              string
		want              uint64
	}{
		{"openai", "application/json", `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"\"usage\":{\"total_tokens\":1}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0}}}`, 29},
		{"openai", "application/json", `{"id":"cmpl-1","object":"text_completion","choices":[{"text":"x"}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}`, 12},
		{"openai", "application/json", `{"object":"list","data":[{"object":"embedding","embedding":[0.1,-0.2e-3],"index":0}],"model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}`, 8},
		{"openai", "application/json", `{"id":"resp_1","object":"response","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}],"usage":{"input_tokens":36,"output_tokens":87,"total_tokens":123}}`, 123},
		{"openai", "text/event-stream", events(
			`{"object":"chat.completion.chunk","choices":[{"delta":{"content":"He"}}],"usage":null}`,
			`{"object":"chat.completion.chunk","choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}`,
			`{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`, `[DONE]`), 29},
		{"openai", "text/event-stream", events(
			`{"type":"response.created","response":{"id":"resp_1","usage":null}}`, `{"type":"response.output_text.delta","delta":"Hi"}`,
			`{"type":"response.completed","response":{"id":"resp_1","usage":{"input_tokens":37,"output_tokens":11,"total_tokens":48}}}`), 48},
		{"anthropic", "application/json", `{"id":"msg_1","type":"message","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":2095,"cache_creation_input_tokens":2051,"cache_read_input_tokens":100,"output_tokens":503}}`, 4749},
		{"anthropic", "text/event-stream", events(
			`{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":25,"output_tokens":1}}}`, `{"type":"ping"}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`, `{"type":"message_stop"}`), 40},
		{"anthropic", "text/event-stream", events(
			`{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":5,"output_tokens":1}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":25,"cache_creation_input_tokens":0,"cache_read_input_tokens":5,"output_tokens":15}}`), 45},
		// Some upstreams end with zeros, or with less than before.
		{"anthropic", "text/event-stream", events(
			`{"type":"message_start","message":{"usage":{"input_tokens":317,"output_tokens":1}}}`,
			`{"type":"message_delta","usage":{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":15}}`, `{"type":"message_delta","usage":{"input_tokens":-1,"output_tokens":3}}`), 332},
		{"openai", "text/event-stream", events(
			`{"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
			`{"choices":[],"usage":{"total_tokens":"?"}}`), 29},
		{"gemini", "text/event-stream", events(`{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":9,"totalTokenCount":13}}`, `{"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`), 13},
		{"ollama", "application/x-ndjson", `{"done":false,"prompt_eval_count":9,"eval_count":4}` + "\n" + `{"done":true,"prompt_eval_count":0,"eval_count":7}` + "\n", 16},
		{"bedrock", "application/vnd.amazon.eventstream", message(`{"usage":{"inputTokens":25,"outputTokens":10,"totalTokens":35}}`) + message(`{"usage":{"inputTokens":0,"outputTokens":0,"totalTokens":0}}`), 35},
		// Rounds that made the conversation shorter, and those of an advisor, are in no other number.
		{"anthropic", "application/json", `{"usage":{"input_tokens":682,"iterations":[
			{"type":"compaction","input_tokens":60385,"output_tokens":592,"cache_creation_input_tokens":0,"cache_read_input_tokens":0},
			{"type":"message","input_tokens":682,"output_tokens":1320}],"output_tokens":1320}}`, 62979},
		{"anthropic", "application/json", `{"usage":{"input_tokens":5,"output_tokens":6,"iterations":[{"cache_read_input_tokens":1000,"cache_creation_input_tokens":200,"input_tokens":30,"output_tokens":4,
			"cache_creation":{"ephemeral_5m_input_tokens":200},"type":"compaction"},{"type":"compaction","input_tokens":10000},{"type":"advisor_message","model":"m","input_tokens":70000,"output_tokens":800000},
			{"type":"message","input_tokens":5,"output_tokens":6},null,7,[],{"type":"new","input_tokens":1}]}}`, 881245},
		// A model that has declined costs nothing. The model that answered is in the numbers beside.
		{"anthropic", "application/json", `{"usage":{"input_tokens":5,"output_tokens":6,"iterations":[{"type":"message","model":"a","input_tokens":4000,"output_tokens":0},{"type":"fallback_message","model":"b","input_tokens":5,"output_tokens":6}]}}`, 11},
		{"anthropic", "text/event-stream", events(
			`{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1,"iterations":[{"type":"compaction","input_tokens":100,"output_tokens":20}]}}}`,
			`{"type":"message_delta","usage":{"output_tokens":9,"iterations":[{"type":"compaction","input_tokens":100,"output_tokens":20},{"type":"compaction","input_tokens":200,"output_tokens":3},{"type":"message","input_tokens":7,"output_tokens":9}]}}`), 339},
		{"anthropic", "application/json", `{"usage":{"input_tokens":700,"iterations":[` + strings.Repeat(`{"type":"message","input_tokens":682,"output_tokens":120,"cache_read_input_tokens":11000},`, 400) + `{"type":"compaction","input_tokens":1}],"output_tokens":1320}}`, 2021},
		{"openai", "application/json", `{"usage":{"prompt_tokens":19,"x":"` + strings.Repeat(`\"`, 5000) + `","completion_tokens":10,"total_tokens":29}}`, 29},
		{"gemini", "application/json", `{"usageMetadata":{"promptTokensDetails":[` + strings.Repeat(`{"modality":"TEXT","tokenCount":4},`, 300) + `{}],"promptTokenCount":4,"candidatesTokenCount":9,"totalTokenCount":13}}`, 13},
		{"gemini", "application/json", `{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":9,"totalTokenCount":13}}`, 13},
		{"gemini", "text/event-stream", events(
			`{"candidates":[{}],"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`,
			`{"candidates":[{}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":30,"totalTokenCount":34}}`), 34},
		{"gemini", "application/json", "[{\"usageMetadata\":{\"totalTokenCount\":4}}\n,\r\n{\"usageMetadata\":{\"totalTokenCount\":35}}\n]", 35},
		// Thoughts are among the candidates' tokens, or beside them.
		{"gemini", "application/json", `{"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":600,"thoughtsTokenCount":400,"totalTokenCount":700}}`, 700},
		{"auto", "application/json", `{"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":600,"thoughtsTokenCount":400,"totalTokenCount":700}}`, 700},
		{"gemini", "application/json", `{"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":600,"thoughtsTokenCount":400,"totalTokenCount":1100}}`, 1100},
		{"gemini", "application/json", `{"embeddings":[{"values":[0.1]},{"values":[0.2]}],"usageMetadata":{"promptTokenCount":200000,"promptTokenDetails":[{"modality":"TEXT","tokenCount":200000}]}}`, 200000},
		{"gemini", "application/json", `{"predictions":[{"embeddings":{"statistics":{"truncated":false,"token_count":6},"values":[0.1]}}]}`, 6},
		{"gemini", "application/json", `{"predictions":[{"embeddings":{"values":[0.1],"statistics":{"token_count":6,"truncated":false}}},{"embeddings":{"statistics":{"truncated":false,"token_count":7},"values":[0.2]}}],"metadata":{"billableCharacterCount":50}}`, 13},
		{"bedrock", "application/json", `{"output":{"message":{"content":[{"text":"x"}]}},"stopReason":"end_turn","usage":{"inputTokens":125,"outputTokens":60,"totalTokens":185},"metrics":{"latencyMs":1175}}`, 185},
		{"bedrock", "application/vnd.amazon.eventstream",
			message(`{"role":"assistant"}`, ":message-type", "event", ":event-type", "messageStart") +
				message(`{"contentBlockIndex":0,"delta":{"text":"x"}}`, ":event-type", "contentBlockDelta") +
				message(`{"metrics":{"latencyMs":5},"usage":{"inputTokens":25,"outputTokens":10,"totalTokens":35}}`, ":event-type", "metadata"), 35},
		{"bedrock", "application/vnd.amazon.eventstream",
			chunk(`{"type":"message_start","message":{"usage":{"input_tokens":8}}}`) +
				chunk(`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":8,"outputTokenCount":12,"invocationLatency":9}}`), 20},
		{"bedrock", "application/vnd.amazon.eventstream",
			chunk(`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":1,"outputTokenCount":47,"invocationLatency":3551,"cacheReadInputTokenCount":147942,"cacheWriteInputTokenCount":953}}`), 148943},
		// A last message may have the whole answer, and the conversation before it.
		{"bedrock", "application/vnd.amazon.eventstream",
			chunk(`{"event_type":"stream-end","response":{"text":"` + strings.Repeat("x", 8<<10) + `"},"amazon-bedrock-invocationMetrics":{"inputTokenCount":8,"outputTokenCount":12}}`), 20},
		{"bedrock", "application/vnd.amazon.eventstream",
			message(`{"p":"abcd","bytes":"`+strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(`{"x":"`+strings.Repeat("???", 8<<10)+`","usage":{"totalTokens":9}}`)), "/", `\/`)+`"}`) +
				message(`{"usage":{"totalTokens":7}}`), 9},
		{"bedrock", "application/vnd.amazon.eventstream", message(`{"usage":{"inputTokens":3,"outputTokens":401,"totalTokens":2193,"cacheReadInputTokens":0,"cacheWriteInputTokens":1789}}`), 2193},
	} {
		var r usage.Reader
		for seed := range uint64(20) {
			if got, found := costOf(&r, presets[usage.Auto], usage.FormatOf([]byte(c.mediaType)), []byte(c.body), seed); got != c.want || !found {
				t.Errorf("%s as auto, %s: %d, %t, want %d of %q", c.preset, c.mediaType, got, found, c.want, c.body)
				break
			}
			if got, found := costOf(&r, presets[c.preset], usage.FormatOf([]byte(c.mediaType)), []byte(c.body), seed); got != c.want || !found {
				t.Errorf("%s, %s: %d, %t, want %d of %q", c.preset, c.mediaType, got, found, c.want, c.body)
				break
			}
		}
	}
}

// shape is an answer from a provider's reference.
type shape struct {
	Type, Preset string
	Tokens       uint64
	Kinds        map[string]uint64
}

// Each shape is recognised, and each of its tokens counts by its kind.
func TestShapes(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes(t) {
		body := must.Get(os.ReadFile(filepath.Join("testdata", "shapes", name)))(t)
		for i := range usage.Presets {
			p := &usage.Presets[i]
			if p.Name != usage.Auto && p.Name != shape.Preset {
				continue
			}
			var r usage.Reader
			tokens, priced := fieldsOf(t, p, false), fieldsOf(t, p, true)
			for seed := range uint64(5) {
				if got, found := costOf(&r, tokens, usage.FormatOf([]byte(shape.Type)), body, seed); got != shape.Tokens || !found {
					t.Errorf("%s as %s: %d tokens, %t, want %d", name, p.Name, got, found, shape.Tokens)
				}
			}
			for kind, kindName := range usage.KindNames {
				rates := usage.Rates{}
				rates[1+kind] = usage.Parts
				r.Reset(priced, usage.FormatOf([]byte(shape.Type)), &rates)
				r.Feed(body)
				if got, found := r.Cost(); got != shape.Kinds[kindName] || !found {
					t.Errorf("%s as %s: %d of %s, %t, want %d", name, p.Name, got, kindName, found, shape.Kinds[kindName])
				}
			}
		}
	}
}

func fieldsOf(t testing.TB, p *usage.Preset, priced bool) *usage.Fields {
	t.Helper()
	return must.Get(p.Fields(priced))(t)
}

func shapes(t testing.TB) (list map[string]shape) {
	t.Helper()
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile("testdata/shapes.json"))(t), &list))
	return list
}

// An answer's cost equals exact arithmetic, rounded up.
func FuzzPrices(f *testing.F) {
	f.Add([]byte(`{"usage":{"prompt_tokens":9,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":3}}}`), uint64(1250000), uint64(125000), uint64(10000000))
	priced := fieldsOf(f, &usage.Presets[len(usage.Presets)-1], true)
	f.Fuzz(func(t *testing.T, body []byte, input, cached, output uint64) {
		const most = 1e12
		rates := usage.Rates{usage.Input: input % most, usage.Cached: cached % most, usage.Output: output % most}
		exact := new(big.Int)
		for kind := usage.Input; kind < usage.Total; kind++ {
			single := usage.Rates{}
			if single[kind] = usage.Parts; kind == usage.Output {
				single[usage.Total] = usage.Parts
			}
			n, found := costOf(new(usage.Reader), priced, usage.JSON, body, 7, &single)
			if !found {
				return
			}
			exact.Add(exact, new(big.Int).Mul(new(big.Int).SetUint64(n), new(big.Int).SetUint64(rates[kind])))
		}
		whole, rest := exact.DivMod(exact, big.NewInt(usage.Parts), new(big.Int))
		if rest.Sign() > 0 {
			whole.Add(whole, big.NewInt(1))
		}
		got, found := costOf(new(usage.Reader), priced, usage.JSON, body, 5, &rates)
		if fits := whole.Cmp(big.NewInt(usage.Most)) <= 0; found != fits || fits && got != whole.Uint64() {
			t.Errorf("%q costs %d, %t, want %v", body, got, found, whole)
		}
	})
}

func events(texts ...string) string { return "data: " + strings.Join(texts, "\n\ndata: ") + "\n\n" }

func chunk(text string) string {
	return message(`{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(text))+`","p":"abcd"}`, ":event-type", "chunk", ":content-type", "application/json")
}

// BenchmarkEvents reads a megabyte of events of a model's stream.
func BenchmarkEvents(b *testing.B) {
	stream := bytes.Repeat([]byte(oneEvent), 1<<20/len(oneEvent)+1)
	for _, preset := range usage.Presets[:2] {
		b.Run(preset.Name, func(b *testing.B) {
			fields := fieldsOf(b, &preset, false)
			var r usage.Reader
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				r.Reset(fields, usage.Events, nil)
				in := bufio.NewReaderSize(bytes.NewReader(stream), 4096)
				for {
					if _, err := in.Peek(1); err != nil {
						break
					}
					piece, _ := in.Peek(in.Buffered())
					r.Feed(piece)
					_, _ = in.Discard(len(piece))
				}
			}
		})
	}
}
