package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"weir/config"
	"weir/internal/must"
	"weir/internal/schema"
)

func compileSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	document := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(schema.JSON)))(t)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft4) // the schema names its own draft
	must.OK(t, c.AddResource("schema.json", document))
	compiled := must.Get(c.Compile("schema.json"))(t)
	must.Equal(t, compiled.DraftVersion, 2020, "the schema is of draft")
	return compiled
}

// The parser and the schema know the same fields, and the schema describes each.
func TestSchemaFields(t *testing.T) {
	t.Parallel()
	var root map[string]any
	must.OK(t, json.Unmarshal(schema.JSON, &root))
	places := map[string][]string{
		"configuration":         {"properties"},
		"backend":               {"properties", "backend", "properties"},
		"block":                 {"$defs", "rule", "properties", "block", "anyOf", "1", "properties"},
		"delay":                 {"$defs", "rule", "properties", "delay", "properties"},
		"charge when":           {"$defs", "rule", "properties", "charge_when", "properties"},
		"response":              {"$defs", "response", "properties"},
		"rule":                  {"$defs", "rule", "properties"},
		"bounds":                {"$defs", "rule", "properties", "cost", "anyOf", "2", "properties"},
		"body cost":             {"$defs", "body_cost", "properties"},
		"prices":                {"properties", "prices", "additionalProperties", "properties"},
		"rates":                 {"properties", "prices", "additionalProperties", "properties", "of", "additionalProperties", "properties"},
		"limit":                 {"$defs", "limit", "properties"},
		"limit from":            {"$defs", "limit", "properties", "limit_from", "properties"},
		"overrides":             {"$defs", "rule", "properties", "overrides", "properties"},
		"classes":               {"$defs", "rule", "properties", "classes", "properties"},
		"class":                 {"$defs", "rule", "properties", "classes", "properties", "of", "additionalProperties", "properties"},
		"key override":          {"$defs", "rule", "properties", "overrides", "properties", "keys", "items", "properties"},
		"match":                 {"$defs", "match", "properties"},
		"client_ip":             {"$defs", "selector_object", "properties", "client_ip", "properties"},
		"string match":          {"$defs", "comparison", "properties"},
		"claim match":           {"$defs", "claim_match", "properties"},
		"selector":              {"$defs", "selector_object", "properties"},
		"body selector":         {"$defs", "key_selector", "anyOf", "1", "properties"},
		"grouped selector":      {"$defs", "grouped_selector", "anyOf", "0", "properties"},
		"grouped body selector": {"$defs", "grouped_selector", "anyOf", "1", "properties"},
		"response selector":     {"$defs", "rule", "properties", "cost_on_response", "anyOf", "1", "properties"},
	}
	lists := config.FieldLists()
	for of, fields := range lists {
		properties, ok := at(root, places[of]).(map[string]any)
		if !ok {
			t.Errorf("the schema has no %s at %v", of, places[of])
			continue
		}
		// A variant may repeat a field of an earlier variant.
		slices.Sort(fields)
		want := slices.Compact(fields)
		must.Same(t, slices.Sorted(maps.Keys(properties)), want, "%s: the fields of the schema, and the parser's", of)
		for name, property := range properties {
			if of != "match" && at(property, []string{"description"}) == nil && at(property, []string{"$ref"}) == nil {
				t.Errorf("%s.%s has no description", of, name)
			}
		}
	}
	must.Equal(t, len(lists), len(places), "lists of fields")
}

// at returns the value at a path of names and indexes.
func at(value any, path []string) any {
	for _, step := range path {
		switch in := value.(type) {
		case map[string]any:
			value = in[step]
		case []any:
			value = in[int(step[0]-'0')]
		default:
			return nil
		}
	}
	return value
}

// beyond are the mistakes that a schema can't find: they span several values, or exceed its types
// and patterns.
var beyond = []string{
	"the plugin knows no CEL",
	"given twice",
	"missing, want the name of an Envoy cluster since sync_rate is not below 0",
	"want a unique name",
	"want at most 1024 limits of all rules together",
	"want fewer or smaller logs and sub-buckets",
	"for a sliding_log of this window",
	"want a duration that divides the window",
	", the value of most",
	", the value of below",
	"which a request reserves by default",
	"want a name that differs from",
	"because a marked request takes nothing",
	`want no "in_flight" together with`,
	"want at most 7 limits with a block",
	"want paths of plain names",
	"because a request that waits is not refused",
	"because a marked request does not wait",
	"want the name of a header in lower case",
	// Its number, and the number's sum.
	`want a duration from "1ms" to`,
	`want a duration from "1s" to`,
	"want a duration in whole milliseconds",
	`since sync_rate is "share"`,
	`without a rule of sync_rate "share"`,
	", or at least one for each of the",
	`want none with sync_rate "share"`,
	`want "share" or a number of seconds: below 0, 0, or from 0.001`,
	`want a network such as`,
	"want no two values of one network",
	"want limits of an address, or of a network",
	"want none, a response of status",
	"want another status with the preset",
	`want "tokens" only with a cost_on_response`,
	"want a number above 0 and below 1, in whole thousandths",
	"want a number above 0 and up to 1, in whole thousandths",
	"want no connection, content-length",
	"want a media type",
	"want a host in lower case",
	"want a regular expression, got",
	"want a regular expression with a group, such as",
	"want the path of a claim",
	"want the path of a number",
	"in whole millionths",
	", which prices has",
	"want the top-level field prices",
	`want cost_on_response "auto" or that of a provider`,
	"want the path of a string",
	"want the IANA name of a time zone",
	"because only limit and burst can differ",
	"want a limit for each limit of the rule",
	"want a value for each selector of the rule's key",
	", as for limit, got",
	"want guaranteed shares of at most 1 in sum",
	"want a share of at least guaranteed",
	"with classes, because",
	`with "fair": true`,
}

// The schema accepts the same documents as the parser, and refuses the same except for mistakes in
// beyond.
func TestSchemaAgreesWithTheParser(t *testing.T) {
	t.Parallel()
	compiled := compileSchema(t)
	agreed, other := 0, 0
	unsaid := map[string]int{}
	check := func(name string, document []byte) {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
		if err != nil {
			return
		}
		refused := compiled.Validate(value)
		_, err = config.Parse(document)
		var mistakes config.Errors
		switch errors.As(err, &mistakes); {
		case err == nil && refused != nil:
			t.Errorf("%s: the schema refuses what the parser accepts: %v\n%.2000s", name, refused, document)
		case err == nil || refused != nil:
			agreed++
		default:
			other++
			for _, mistake := range mistakes {
				i := slices.IndexFunc(beyond, func(part string) bool { return strings.Contains(mistake.Problem, part) })
				if i < 0 {
					t.Errorf("%s: the schema accepts %v\n%.2000s", name, mistake, document)
				} else {
					unsaid[beyond[i]]++
				}
			}
		}
	}
	for _, file := range slices.Concat(config.ReadArchive(t, "good.txtar"), config.ReadMistakes(t)) {
		if strings.HasPrefix(file.Name, "document--") {
			continue
		}
		check(file.Name, file.Content)
		if len(file.Content) > largestMutated {
			continue
		}
		for i, mutant := range mutants(t, file.Content) {
			if i%thinned != len(file.Content)%thinned {
				continue
			}
			check(fmt.Sprintf("%s, mutant %d", file.Name, i), mutant)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d documents agree, %d have mistakes that no schema tells of: %v", agreed, other, unsaid)
	must.AtLeast(t, agreed, 10*other, "texts on which both agree")
}

// largestMutated is the largest document that is mutated. Larger documents have many similar limits
// or headers.
const largestMutated = 2 << 10

// One mutant in thinned is tried, because neighbours differ little.
const thinned = 7

// mutants returns documents in which one value is changed, missing, or under another name.
func mutants(t *testing.T, document []byte) (all [][]byte) {
	t.Helper()
	var root any
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if d.Decode(&root) != nil {
		return nil
	}
	emit := func() {
		text := must.Get(json.Marshal(root))(t)
		all = append(all, text)
	}
	var pool []any
	for _, text := range []string{
		`null`, `true`, `0`, `1`, `-1`, `1.5`, `17`, `1000000`, `1e15`, `""`, `"x"`, `"1m"`, `"1m1"`, `"GET"`, `"/x"`, `"a b"`, `"client_ip"`,
		`"token_bucket"`, `"first_hit"`, `"hash"`, `[]`, `["x"]`, `["GET"]`, `[{"header": "x"}]`, `["10.0.0.0/8"]`, `{}`, `{"x": 1}`,
		`{"header": "x"}`, `{"query": "x"}`, `{"jwt_claim": "x"}`, `{"jwt_claim": "x", "header": "y"}`, `{"jwt_claim": "x", "metadata": "y"}`, `{"jwt_claim": "x", "header": "y", "metadata": "z"}`, `{"header": "x", "cookie": "y"}`,
		`{"response_header": "x"}`, `{"header": "x", "least": 1}`, `{"client_ip": {}}`, `{"exact": "x"}`, `{"exact": "/x"}`,
		`{"prefix": "/x", "suffix": "y"}`, `{"present": false}`, `{"path": {"prefix": "/"}}`, `{"limit": 1, "window": "1s"}`,
		`{"limit": 1, "window": 1, "algorithm": "token_bucket", "burst": 5}`, `{"limit": 1, "window": 1, "burst": 5}`,
	} {
		var value any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		must.OK(t, d.Decode(&value))
		pool = append(pool, value)
	}
	var walk func(value any, set func(any))
	walk = func(value any, set func(any)) {
		for _, other := range pool {
			set(other)
			emit()
		}
		set(value)
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				child := value[name]
				delete(value, name)
				emit()
				value[name+"x"] = child
				emit()
				delete(value, name+"x")
				value[name] = child
				walk(child, func(other any) { value[name] = other })
			}
			for _, name := range []string{"x", "burst", "start", "precision", "header", "least", "client_ip", "body"} {
				if _, ok := value[name]; !ok {
					value[name] = json.Number("1")
					emit()
					value[name] = "1s"
					emit()
					delete(value, name)
				}
			}
		case []any:
			for i, child := range value {
				walk(child, func(other any) { value[i] = other })
			}
			set(append(slices.Clone(value), value...))
			emit()
			set(value)
		}
	}
	walk(root, func(other any) { root = other })
	return all
}
