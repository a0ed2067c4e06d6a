package config

import (
	"math"
	"strconv"

	"weir/internal/fields"
	"weir/internal/jsonpath"
	"weir/internal/usage"
)

const (
	maxUsageFields   = 8
	maxBodyPaths     = 8
	maxBytesPerToken = 1000
	// maxPrompt is the most tokens of a prompt unless a configuration says otherwise. Most models have
	// windows below it.
	maxPrompt        = 2_000_000
	maxWeight        = 1_000_000
	wantPath         = `the path of a number such as `
	wantResponsePath = wantPath + `"usage.total_tokens"`
	wantRequestPath  = wantPath + `"max_tokens"`
	wantTextPath     = `the path of a string such as "model"`
	likeBodyCost     = `{"request_json": "max_tokens", "default": 500}`
	likeUsage        = `{"response_json": "usage.total_tokens"}`
)

// boundFields are the fields that the selector of a cost may have in addition to its own.
var boundFields = []field{{"least", optional}, {"most", optional}}

// readCost reads a number, or a selector with bounds. A client may write the selected value, so no
// request is free unless the configuration says so.
func readCost(v *value, rule *Rule) {
	if v.kind == kindNumber {
		rule.Cost = uint64(v.integer(0, maxHits))
		return
	}
	if v.get("request_json") != nil {
		readBodyCost(v, rule)
		return
	}
	rule.CostLeast, rule.CostMost = 1, math.MaxUint64
	var least *value
	s := readSelector(v, "an integer from 0, "+wantSelector, boundFields, func(name string, v *value) {
		if name == "most" {
			rule.CostMost = uint64(v.integer(1, maxHits))
			return
		}
		least = v
		rule.CostLeast = uint64(v.integer(0, maxHits))
	})
	rule.CostFrom = &s
	notAbove(least, rule.CostLeast, rule.CostMost)
}

// readReserve reads the cost that a request takes until its response is known.
func readReserve(v, cost *value, rule *Rule) {
	switch {
	case cost.given():
		v.fail("want either cost or reserve, got both")
	case rule.CostOnResponse == nil && rule.Usage == nil:
		v.fail("want cost_on_response too, which says what the request really costs")
	default:
		rule.Reserve = true
		readCost(v, rule)
	}
}

var (
	bodyCostFields = append([]field{{"request_json", required}, {"default", required}, {"unread", optional}, {"times", optional}, {"prompt", optional}}, boundFields...)
	promptFields   = []field{{"bytes_per_token", required}, {"most", optional}}
	bodySumFields  = []field{{"sum", required}}
	// unreads are in the order of Unread.
	unreads = []string{"default", "most", "refuse"}
)

// readBodyCost reads where a request's JSON body has its cost.
func readBodyCost(v *value, rule *Rule) {
	rule.Cost, rule.CostFromBody = 0, &BodyCost{PromptMost: maxPrompt}
	rule.CostLeast, rule.CostMost = 1, math.MaxUint64
	var least, otherwise, unread *value
	v.object(likeBodyCost, bodyCostFields, func(name string, v *value) {
		switch name {
		case "request_json":
			rule.CostFromBody.readPaths(v)
		case "prompt":
			v.object(`{"bytes_per_token": 4}`, promptFields, func(name string, v *value) {
				if name == "most" {
					rule.CostFromBody.PromptMost = uint64(v.integer(1, maxHits))
				} else {
					rule.CostFromBody.BytesPerToken = uint64(v.integer(1, maxBytesPerToken))
				}
			})
		case "times":
			rule.CostFromBody.Times = readPath(v, `the path of a number such as "n"`)
		case "default":
			otherwise = v
			rule.CostFromBody.Default = uint64(v.integer(0, maxHits))
		case "unread":
			unread = v
			rule.CostFromBody.Unread, rule.CostFromBody.Chosen = Unread(max(v.choice(unreads), 0)), true
		case "least":
			least = v
			rule.CostLeast = uint64(v.integer(0, maxHits))
		case "most":
			rule.CostMost = uint64(v.integer(1, maxHits))
		}
	})
	if rule.CostFromBody.Unread == UnreadMost && rule.CostMost == math.MaxUint64 {
		unread.fail("want most too, which such a request takes")
	}
	b := rule.CostFromBody
	switch b.Unsized = b.Unread; {
	case b.Chosen:
	case rule.CostMost == math.MaxUint64: // there is no bound on what such a request costs
		b.Unsized = UnreadRefuse
	default:
		b.Unsized = UnreadMost
	}
	notAbove(otherwise, rule.CostFromBody.Default, rule.CostMost)
	notAbove(least, rule.CostLeast, rule.CostMost)
}

// readPaths reads a path, a list of paths, or a sum.
func (b *BodyCost) readPaths(v *value) {
	one := func(v *value) { b.Paths = append(b.Paths, readPathBy(v, wantRequestPath, jsonpath.CompileNumber)) }
	switch v.kind {
	case kindArray:
		v.array("paths", 1, maxBodyPaths, one)
	case kindObject:
		b.Sum = true
		v.object(`{"sum": ["max_tokens", "thinking.budget_tokens"]}`, bodySumFields, func(_ string, v *value) { v.array("paths", 1, maxBodyPaths, one) })
	default:
		one(v)
	}
}

// notAbove reports a number above most, unless the number has an error already.
func notAbove(v *value, n, most uint64) {
	if most != 0 && n > most {
		v.wrong("at most " + strconv.FormatUint(most, 10) + ", the value of most")
	}
}

// readMostPerRequest reads the most that a request may reserve. It must allow what a request
// reserves by default.
func readMostPerRequest(v *value, rule *Rule) {
	rule.MostPerRequest = uint64(v.integer(1, maxHits))
	least := max(rule.Cost, rule.CostLeast)
	if rule.CostFromBody != nil {
		least = max(rule.CostFromBody.Default, rule.CostLeast)
	}
	switch {
	case !rule.Reserve:
		v.fail("want reserve too, which this field bounds")
	case rule.Prices != nil: // the bound is in money, and the costs in tokens
	case rule.MostPerRequest != 0 && rule.MostPerRequest < least:
		v.wrong("at least " + strconv.FormatUint(least, 10) + ", which a request reserves by default")
	}
}

// onFailures are in the order of OnFailure, from GiveBack.
var onFailures = []string{"give_back", "keep"}

func readOnFailure(v *value, rule *Rule) {
	if rule.OnFailure = GiveBack + OnFailure(max(v.choice(onFailures), 0)); !rule.Reserve {
		v.fail("want reserve too, which this field is about")
	}
}

func readCut(v *value, rule *Rule) {
	if v.kind == kindString && v.text == "error" {
		rule.Cut, rule.CutFails = true, true
	} else if rule.Cut = v.raw == "true"; v.kind != kindBoolean {
		v.wrong(`true, false or "error"`)
	}
	if rule.Cut && (rule.Usage == nil || rule.Usage.Ending == usage.NoEnding && !rule.Usage.Auto) {
		v.fail(`want cost_on_response "openai", "anthropic", "gemini" or "auto" too: only their streams have an event that ends them`)
	}
}

// readAsk reads whether streams are asked for their usage.
func readAsk(v *value, rule *Rule) {
	switch {
	case v.kind == kindString && v.text == "pass":
		rule.Ask = AskAndPass
	case v.kind != kindBoolean:
		v.wrong(`true, false or "pass"`)
	case v.raw == "true":
		rule.Ask = AskAlways
	default:
		rule.Ask = AskNever
	}
	if rule.Ask != AskNever && (rule.Usage == nil || !rule.Usage.asked()) {
		v.fail(`want cost_on_response "openai" or "auto" too: only these streams have to be asked`)
	}
}

// checkLimitTokens reports a rule that does not know which number of a request to lower.
func checkLimitTokens(v *value, rule *Rule) {
	b := rule.CostFromBody
	if b == nil || b.Sum || !rule.Reserve {
		v.fail(`want a reserve with "request_json" too, a path or a list: it says which number of a request is lowered`)
		return
	}
	for _, path := range b.Paths {
		if path != nil && !path.IsPlain() {
			v.fail(`want paths of plain names in reserve, got "` + path.Join(".") + `"`)
		}
	}
}

// asked reports whether some of the streams tell their usage only if the request asks for it.
func (u *Usage) asked() bool { return u.Auto || u.preset != nil && u.preset.Name == "openai" }

// readTokenHeaders makes a rule that counts tokens send the token headers of its provider.
func readTokenHeaders(v *value, rule *Rule) {
	switch {
	case rule.Usage == nil:
		rule.Headers &^= fields.Tokens
		if v.given() {
			v.fail(`want "tokens" only with a cost_on_response that is read from the body`)
		}
	case rule.Prices != nil:
		rule.Headers ^= fields.Tokens | fields.Money
	case rule.Usage.Anthropic:
		rule.Headers ^= fields.Tokens | fields.AnthropicTokens
	}
}

var (
	usageFields = []field{{"response_json", required}, {"weight", optional}}
	sumVariants = [][]field{{{"response_json", optional}}, {{"sum", optional}}}
)

// readResponseCost reads what to count when the response is there.
func readResponseCost(v *value, rule *Rule) {
	if v.kind == kindString {
		for i := range usage.Presets {
			if p := &usage.Presets[i]; p.Name == v.text {
				list, err := p.Fields(false)
				if err != nil {
					v.fail(err.Error())
				}
				rule.Usage = &Usage{Fields: list, Headers: p.Headers, Ending: p.Ending, Auto: p.Name == usage.Auto, Anthropic: p.Name == "anthropic", preset: p}
				return
			}
		}
	}
	if v.get("response_json") != nil || v.get("sum") != nil {
		rule.Usage = readUsage(v)
		return
	}
	s := readResponseSelector(v)
	rule.CostOnResponse = &s
}

// readUsage reads which numbers of a body make up the cost.
func readUsage(v *value) *Usage {
	var list []usage.Field
	v.oneOf(likeUsage, sumVariants, nil, func(name string, v *value) {
		if name == "response_json" {
			list = append(list, usage.Field{Paths: []*jsonpath.Path{readPath(v, wantResponsePath)}, Weight: usage.Parts})
			return
		}
		v.array("numbers", 1, maxUsageFields, func(v *value) {
			field := usage.Field{Weight: usage.Parts}
			v.object(`{"response_json": "usage.completion_tokens", "weight": 4}`, usageFields, func(name string, v *value) {
				if name == "weight" {
					field.Weight = readRate(v, 1)
				} else {
					field.Paths = append(field.Paths, readPath(v, wantResponsePath))
				}
			})
			list = append(list, field)
		})
	})
	if len(v.report.found) > 0 {
		return &Usage{}
	}
	return &Usage{Fields: usage.NewFields(list)}
}

// readRate reads the worth of a unit, and returns it in millionths. It is at least that many
// millionths.
func readRate(v *value, least int64) uint64 {
	if v.kind == kindNumber {
		if n, whole := parseDecimal(v.raw).scaled(6); whole && n >= least && n <= maxWeight*usage.Parts {
			return uint64(n)
		}
	}
	from := "0"
	if least > 0 {
		from = "0.000001"
	}
	v.wrong("a number from " + from + " to " + strconv.Itoa(maxWeight) + " in whole millionths")
	return 0
}

// readPath returns a path, or nil after reporting an error.
func readPath(v *value, want string) *jsonpath.Path { return readPathBy(v, want, jsonpath.Compile) }

func readPathBy(v *value, want string, compile func(path string) (*jsonpath.Path, error)) *jsonpath.Path {
	if v.kind != kindString || v.text == "" {
		v.wrong(want)
		return nil
	}
	path, err := compile(v.text)
	if err != nil {
		v.fail("want " + want + ", got a path with " + err.Error())
		return nil
	}
	return path
}

// Statuses is a set of HTTP statuses.
type Statuses struct {
	classes uint8 // bit 4 stands for 4xx
	codes   []int
}

// Has reports whether a status is in the set. A nil *Statuses has all statuses.
func (s *Statuses) Has(status int) bool {
	if s == nil || s.classes>>(status/100)&1 != 0 {
		return true
	}
	for _, code := range s.codes {
		if code == status {
			return true
		}
	}
	return false
}

const maxStatuses = 64

var chargeWhenFields = []field{{"status", required}}

// readChargeWhen reads which responses a rule charges.
func readChargeWhen(v *value) *Statuses {
	s := new(Statuses)
	v.object(`{"status": ["401", "403"]}`, chargeWhenFields, func(_ string, v *value) {
		v.array("statuses", 1, maxStatuses, s.read)
	})
	return s
}

// read reads a status such as "403", or a class such as "5xx".
func (s *Statuses) read(v *value) {
	if text := v.text; v.kind == kindString && len(text) == 3 && text[0] >= '1' && text[0] <= '5' {
		if text[1:] == "xx" {
			s.classes |= 1 << (text[0] - '0')
			return
		}
		if isDigit(text[1]) && isDigit(text[2]) {
			s.codes = append(s.codes, int(text[0]-'0')*100+int(text[1]-'0')*10+int(text[2]-'0'))
			return
		}
	}
	v.wrong(`a status from "100" to "599", or a class such as "5xx"`)
}
