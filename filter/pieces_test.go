package filter_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"weir/filter"
	"weir/internal/must"
)

// fourReaders has rules that read the same answer, each in its own way and with its own key.
const fourReaders = `{"headers": ["x-ratelimit"],
	"prices": {"models": {"of": {"a": {"input": 1.25, "cached": 0.125, "output": 10}, "b": {"input": 3, "output": 15}, "*": {"input": 100}}}},
	"rules": [%s]}`

func fourRules() string {
	var rules []string
	for i, cost := range []string{
		`"openai"`, `"auto", "price": "models"`, `{"sum": [{"response_json": "usage.total_tokens", "weight": 5}, {"response_json": "a/b"}, {"response_json": "eval_count"}]}`, `"anthropic", "price": "models", "cut": true`,
	} {
		rules = append(rules, fmt.Sprintf(`{"name": "%d", "key": [{"header": "x-key-%d"}], "reserve": {"header": "x-reserve", "least": 0}, "limits": [{"limit": 900000000000, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": %s}`, i, i, cost))
	}
	return fmt.Sprintf(fourReaders, strings.Join(rules, ","))
}

// costs returns what the keys that end in suffix have cost, of each rule.
func (v *fakeVM) costs(suffix string) (costs [4]int) {
	for rule := range costs {
		headers := []string{"x-reserve", "0"}
		for i := range costs {
			key := suffix
			if i != rule {
				key = "unused"
			}
			headers = append(headers, fmt.Sprint("x-key-", i), key)
		}
		s := v.open(headers...)
		must.EqualOrEnd(v.t, s != nil, true, "it passes")
		v.finish(s, ":status", "503")
		left := 0
		must.Get(fmt.Sscan(v.response["x-ratelimit-remaining"]+v.response["x-ratelimit-remaining-cost"], &left))(v.t)
		costs[rule] = 900000000000 - left
	}
	return costs
}

// longAnswer returns a random body, often longer than several reads.
func longAnswer(random *rand.Rand, format int) string {
	var body strings.Builder
	texts := []string{
		`{"model":"a","usage":null,"choices":[{"delta":{"content":"x"}}]}`, `{"model":"b"}`, `{"x":"` + strings.Repeat("\\n\\n_t", 1<<random.IntN(15)) + `"}`, `{"usage":{"total_tokens":70},"model":"b"}`,
		`{"message":{"model":"a","usage":{"input_tokens":25,"output_tokens":1}}}`, `{"usage":{"output_tokens":15}}`, `{"a\/b":9}`, `{"eval_count":3,"usage":{"prompt_tokens":5,"completion_tokens":70,"total_tokens":75}}`,
		`{}`, `{"x":"` + strings.Repeat("y", random.IntN(3<<10)) + `"}`, `{"usage":7}`,
	}
	wanted := 1 << random.IntN(19)
	for body.Len() < wanted {
		text := texts[random.IntN(len(texts))]
		end := []string{"\n", "\r\n", "\r"}[random.IntN(3)]
		for range 1 + random.IntN(1+random.IntN(200)) {
			switch format {
			case 0:
				if body.Len() == 0 && random.IntN(2) == 0 {
					body.WriteString("\ufeff")
				}
				body.WriteString("data: " + text + end + end)
			case 1:
				body.WriteString([]string{"[", ","}[min(body.Len(), 1)] + text)
			case 2:
				body.WriteString(text + "\n")
			case 3:
				// The headers and checksums of a message may look like the end of an event.
				text := strings.ReplaceAll(text, ":", ":\n\n")
				head := "\n\n\n\n"
				message := binary.BigEndian.AppendUint32(nil, uint32(16+len(head)+len(text)))
				message = append(binary.BigEndian.AppendUint32(message, uint32(len(head))), "\n\n\n\n"...)
				body.WriteString(string(message) + head + text + "\n\n\n\n")
			}
			if body.Len() > 400<<10 {
				return body.String()
			}
		}
	}
	return body.String()
}

// An answer costs the same in all pieces in which Envoy may bring it, by rules that read it in different
// ways.
func TestPiecesCostAlike(t *testing.T) {
	mediaTypes := []string{"text/event-stream", "application/json", "application/x-ndjson", "application/vnd.amazon.eventstream"}
	random := rand.New(rand.NewPCG(32, 6))
	v := newProxy(t).start(fourRules())
	for n := range 120 {
		format := n % len(mediaTypes)
		body := longAnswer(random, format)
		var want [4]int
		for way := range 4 {
			key := fmt.Sprint(n, " ", way)
			s := v.open("x-key-0", key, "x-key-1", key, "x-key-2", key, "x-key-3", key, "x-reserve", "100")
			v.respond(s, false, "content-type", mediaTypes[format])
			sizes := []int{len(body), filter.BodyPiece, 1 + random.IntN(2*filter.BodyPiece), max(1, len(body)/50)}
			for rest := body; len(rest) > 0; {
				size := min(len(rest), sizes[way])
				if way > 1 {
					size = min(len(rest), 1+random.IntN(sizes[way]))
				}
				v.bring(s, way != 1 && size == len(rest), rest[:size])
				if rest = rest[size:]; random.IntN(8) == 0 {
					v.tick() // which settles the cost so far
				}
			}
			if way == 1 && n%2 == 0 {
				v.bring(s, true, "")
			} else if way == 1 {
				v.trail(s)
			}
			v.reset(s)
			got := v.costs(key)
			if way == 0 {
				want = got
			}
			must.EqualOrEnd(t, got, want, "body %d of %d bytes, %s, way %d: costs: %.400q", n, len(body), mediaTypes[format], way, body)
		}
	}
}
