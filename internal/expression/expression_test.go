package expression_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"weir/config"
	"weir/internal/expression"
	"weir/internal/must"
)

// compile returns a match for an expression, or the mistake in it.
func compile(text string) string {
	fields, err := expression.Compile(text)
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, f := range fields {
		all = append(all, fmt.Sprintf("%q:%s", f.Name, f.JSON))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// Expressions become the shortest conditions, which the plugin takes.
func TestCompile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ expression, want string }{
		{`request.method == "POST"`, `{"method":{"exact":"POST"}}`},
		{`"POST" != request.method`, `{"not":{"method":{"exact":"POST"}}}`},
		{`request.method in ["PUT", "GET", "PUT"] && request.url_path.startsWith("/v1/")`, `{"method":{"in":["GET","PUT"]},"path":{"prefix":"/v1/"}}`},
		{`request.headers["X-Plan"] != "<a>"`, `{"headers":{"x-plan":{"present":true}},"not":{"headers":{"x-plan":{"exact":"<a>"}}}}`},
		{`!("x-plan" in request.headers) || !has(query.page)`, `{"any":[{"headers":{"x-plan":{"present":false}}},{"query":{"page":{"present":false}}}]}`},
		{`"a" in cookie && cookie.a == "b" && "a" in cookie`, `{"cookie":{"a":{"exact":"b"}}}`},
		{`has(cookie.a) && !has(cookie.a)`, `{"cookie":{"a":{"present":true}},"any":[{"cookie":{"a":{"present":false}}}]}`},
		{`query.a.startsWith("a") && query.a.endsWith("b") && query.a.contains(".") && query.b == "c"`, `{"query":{"a":{"prefix":"a"},"b":{"exact":"c"}},` +
			`"any":[{"query":{"a":{"suffix":"b"}}}],"not":{"not":{"any":[{"query":{"a":{"regex":"(?s:.*)\\.(?s:.*)"}}}]}}}`},
		{`!(request.method == "PUT" || request.host == "a.example")`, `{"not":{"any":[{"method":{"exact":"PUT"}},{"host":{"exact":"a.example"}}]}}`},
		{`int(query["page"]) > 100`, `{"query":{"page":{"above":100,"below":9223372036854775808}},"any":[{"query":{"page":{"regex":"-?[0-9]+"}}}]}`},
		{`100 >= int(query.page)`, `{"query":{"page":{"above":-9223372036854775809,"below":101}},"any":[{"query":{"page":{"regex":"-?[0-9]+"}}}]}`},
		{`source.address == "10.0.0.1" || client_ip in ["::1", "10.0.0.2"] || in_cidr(client_ip, ["10.1.0.0/16"])`,
			`{"any":[{"client_ip":{"exact":"10.0.0.1"}},{"client_ip":{"in":["10.0.0.2/32","::1/128"]}},{"client_ip":{"in":["10.1.0.0/16"]}}]}`},
		{`path_segment[2] == "v1" && request_json["a.b"].matches("^x[0-9]$") && jwt_claim.sub.matches("a|^b")`,
			`{"path_segment":{"2":{"exact":"v1"}},"request_json":{"a.b":{"regex":"x[0-9]"}},"jwt_claim":{"sub":{"regex":"(?s:.*)(?:a|^b)(?s:.*)"}}}`},
		{`metadata.filter_metadata["envoy.filters.http.jwt_authn"].payload["a|b"] == "c" && !connection.mtls`,
			`{"property":{"metadata.filter_metadata.envoy\\.filters\\.http\\.jwt_authn.payload.a\\|b":{"exact":"c"},"connection.mtls":{"exact":"false"}}}`},
		{`query.a.matches("\\Qa|b") && query.b.matches("^\\Q.\\E\\\\Q$") && query.c.matches("^*")`,
			`{"query":{"a":{"regex":"(?s:.*)(?:a\\|b)(?s:.*)"},"b":{"regex":"\\.\\\\Q"},"c":{"regex":"(?s:.*)^*(?s:.*)"}}}`},
		{`destination.port == 80 && source.port in [1, 2] && connection.id >= 7 && !(request.size <= 5)`,
			`{"property":{"destination.port":{"exact":"80"},"source.port":{"in":["1","2"]},"request.size":{"above":5}},"any":[{"property":{"connection.id":{"above":7}}},{"property":{"connection.id":{"exact":"7"}}}]}`},
		{`property["metadata.filter_metadata.plan"] == "gold" && request.path.endsWith("?x") && request.scheme == "http"`,
			`{"property":{"metadata.filter_metadata.plan":{"exact":"gold"}},"headers":{":path":{"suffix":"?x"},":scheme":{"exact":"http"}}}`},
		{`request.scheme != "a" && request.headers[":scheme"] == "b"`, `{"headers":{":scheme":{"exact":"b"}},"not":{"headers":{":scheme":{"exact":"a"}}}}`},
		{`request.path == "/a" && request.headers[":path"].endsWith("a")`, `{"headers":{":path":{"exact":"/a"}},"any":[{"headers":{":path":{"suffix":"a"}}}]}`},
	} {
		got := compile(test.expression)
		must.Equal(t, got, test.want, "%s", test.expression)
		_, err := config.Parse([]byte(`{"rules": [{"name": "r", "match": ` + got + `, "limits": [{"limit": 1, "window": "1s"}]}]}`))
		must.Reportf(t, err, "%s", test.expression)
	}
}

// What can't be compiled is refused at its place.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const number, names = ": int(…) makes a number of a text", "want one of client_ip, connection, cookie, "
	for expression, want := range map[string]string{
		``:                                "column 1: not CEL: mismatched input '<EOF>'",
		`request.method = "A"`:            "column 16: not CEL: token recognition error",
		`foo == 1`:                        "column 1: " + names,
		"true ||\n  request.methd == 'a'": "line 2, column 3: unknown name request.methd, did you mean request.method?",
		`request.headers["ü"] == "ä" && size == 1`: "column 32: " + names,
		`request.headers["a"] == 1`:                "column 22: == does not take (string, int)" + number,
		`request.headers.a == request.headers.b`:   "column 37: want texts in quotes, or whole numbers",
		`int(query.a) == int(query.b)`:             "column 20: want texts in quotes, or whole numbers",
		`true`:                                     "column 1: want a condition on the request, of ==",
		`"x"`:                                      "column 1: want a condition on the request, of ==",
		`request.method`:                           "column 8: want a condition on the request, of ==",
		`request.method + "a" == "b"`:              "column 22: want a part of the request on one side",
		`size(request.method) > 1`:                 "column 22: want a part of the request on one side",
		`double(query.x) > 1.0`:                    "column 17: want a part of the request on one side",
		`request.headers[request.method] == "a"`:   "column 33: want a part of the request on one side",
		`request.method < "a"`:                     "column 16: want a condition on the request, of ==",
		`request.method == "A" ? true : false`:     "column 23: want a condition on the request, of ==",
		`has(cookie.a) == true`:                    "column 15: want a part of the request on one side",
		`["a"].exists(x, x == "a")`:                "column 13: " + names,
		`request.method in []`:                     "column 19: want a value in the list",
		`request.method in cookie`:                 "column 16: want a list, or a name in quotes",
		`destination.port in ["80", 443]`:          "column 21: want texts in quotes, or whole numbers",
		`destination.port == [80]`:                 "column 21: want a text or a number, or a list of these",
		`client_ip in ["10.0.0.1", "10.0.0.0/8"]`:  "column 14: want addresses for in, and in_cidr(client_ip, [...]) for networks",
		`request.method.matches("a(")`:             "column 24: want a regular expression: missing closing ): `a(`",
		`destination.port + 1`:                     "column 18: want a condition on the request, of ==",
		`int(query.x) % 2`:                         "column 14: want a condition on the request, of ==",
		`in_cidr(request.method, ["10.0.0.0/8"])`:  "column 8: want a condition on the request, of ==",
		`request.headers[""] == "a"`:               "column 8: want a name",
		`"" in query`:                              "column 7: want a name",
	} {
		if got := compile(expression); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
}

// A number of metadata may have a fraction, and metadata may be a text: CEL decides so of all of them.
func TestNumbersOfMetadata(t *testing.T) {
	t.Parallel()
	env, err := cel.NewEnv(cel.Variable("metadata", cel.DynType))
	must.OK(t, err)
	for _, text := range []string{"%s < 5", "%s <= 5", "%s > 5", "%s >= 5", "%s == 5", "%s != 5", "%s in [5, 7]", "5 < %s", "-1 >= %s"} {
		text = fmt.Sprintf(text, "metadata.n")
		for _, text := range []string{text, "!(" + text + ")"} {
			checked, issues := env.Compile(text)
			must.OK(t, issues.Err())
			program := must.Get(env.Program(checked))(t)
			var m map[string]any
			must.OK(t, json.Unmarshal([]byte(compile(text)), &m))
			for _, value := range []any{-1e30, -1.5, -1.0, 0.0, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0, 1e30, "", "abc", "x5", true, nil} {
				of := map[string]any{}
				if value != nil {
					of["n"] = value
				}
				result, _, err := program.Eval(map[string]any{"metadata": of})
				if want := err == nil && result == types.True; meets(m, value) != want {
					t.Errorf("%s of %v: %v, CEL says %v, %v\n%s", text, value, !want, result, err, compile(text))
				}
			}
		}
	}
}

// meets reports whether metadata.n meets a match, as the plugin compares its text.
func meets(m map[string]any, value any) bool {
	text, number := fmt.Sprint(value), math.NaN()
	if n, ok := value.(float64); ok {
		text, number = strconv.FormatFloat(n, 'f', -1, 64), n
	}
	for field, of := range m {
		switch field {
		case "any":
			if !slices.ContainsFunc(of.([]any), func(m any) bool { return meets(m.(map[string]any), value) }) {
				return false
			}
		case "not":
			if meets(of.(map[string]any), value) {
				return false
			}
		case "property":
			for how, wanted := range of.(map[string]any)["metadata.n"].(map[string]any) {
				holds := false
				switch how {
				case "exact":
					holds = text == wanted
				case "in":
					holds = slices.Contains(wanted.([]any), any(text))
				case "above":
					holds = number > wanted.(float64)
				case "below":
					holds = number < wanted.(float64)
				case "present":
					holds = wanted == true
				}
				if holds = holds && value != nil || how == "present" && wanted == (value != nil); !holds {
					return false
				}
			}
		}
	}
	return true
}

// FuzzCompile wants each expression to be refused, or to become an object of conditions.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{`a.b["c"].d in [1, "2"] && !(int(query.x) > -1 || x.matches("(")) ? 1 : 2`, `request.method == "\u00e4\x00"`, `{"a": 1}.a == 1`, "`"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if fields, err := expression.Compile(text); err == nil && (len(fields) == 0 || !json.Valid([]byte(compile(text)))) {
			t.Errorf("%q: got %s", text, compile(text))
		}
	})
}
