package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"weir/internal/must"
)

// expressionsByHand are of forms that the generator does not make.
var expressionsByHand = []string{
	`request.method == "POST" && request.url_path.startsWith("/s/a") && !("x-a" in request.headers)`,
	`request.path.contains("user+name=5") || request.path.endsWith("/ann")`,
	`request.path.matches("\\Q?user+name=5") || request.path.matches("\\Qann\\E$|^/s/\\Qx")`, `request.path.matches("^*") && request.headers["x-a"].matches("^\\Qan\\E+a?$")`,
	`destination.port >= 8080 && !(destination.port < 8080) || destination.port in [1, 2]`,
	`request.path.matches("^/s/x?ann(a|)[?]") && request.scheme == "http"`,
	`request.headers["X-A"].matches("^[0-9]+$")`,
	`request.headers["x-a"].startsWith("a") && request.headers["x-a"].endsWith("a") && request.headers["x-a"] != "anna"`,
	`request.headers["x-a"].startsWith("a") || request.headers["x-a"].startsWith("x") || request.headers["x-a"] in ["5", "5"]`,
	`!(request.headers["x-a"] != "ann" || request.headers["x-a"].endsWith("z"))`,
	`!!(cookie.sid == "ann")`, `!(cookie.sid == "ann" && query["user name"] == "ann")`, `!(cookie.sid == "ann" || query["user name"] == "ann")`,
	`(has(cookie.sid) || has(jwt_claim.plan)) && (!has(cookie.sid) || !has(jwt_claim.plan)) && ("user name" in query || "x-a" in request.headers)`,
	`int(query["user name"]) >= 5 && int(query["user name"]) <= 10`, `!(int(query["user name"]) >= 5 && int(query["user name"]) <= 10)`,
	`int(query["user name"]) > -9223372036854775808`, `int(query["user name"]) <= 9223372036854775807`, `5 < int(query["user name"])`,
	`!(int(request_json.model) in [5, 7, 10])`, `int(request_json.model) != 5 && request_json.model != "007"`,
	`destination.port > 1 && !(destination.port == 1)`, `int(destination.port) < 65536 && has(destination.port)`, `xds.no_such == "x" || !has(xds.no_such)`,
	`in_cidr(source.address, ["10.0.0.0/16", "2001:db8::/32"])`, `!in_cidr(client_ip, ["10.0.0.0/16"]) && client_ip != "2001:db8::1"`,
	`client_ip in ["10.0.0.1", "2001:db8::1"]`, `path_segment[2] == "ann" && 2 in path_segment && !(3 in path_segment)`,
	`metadata.filter_metadata["no.such"].x == "y" || request.method == "PUT"`,
}

// named is the name of a part in expressions, and how it asks whether there is one.
func (c *compared) named() (name, there string) {
	switch c.field {
	case "path":
		return "request.url_path", ""
	case "host", "method":
		return "request." + c.field, ""
	case "client_ip":
		return c.field, ""
	case "path_segment":
		return "path_segment[2]", "2 in path_segment"
	case "headers":
		return `request.headers["x-a"]`, `"x-a" in request.headers`
	}
	return fmt.Sprintf("%s[%q]", c.field, c.name), fmt.Sprintf("%q in %s", c.name, c.field)
}

// randomExpression returns an expression of CEL about some of the parts.
func randomExpression(r *rand.Rand, parts []compared, depth int) string {
	if kind := r.IntN(4); depth > 0 && kind > 0 {
		a := randomExpression(r, parts, depth-1)
		if kind == 1 {
			return "!(" + a + ")"
		}
		return "(" + a + []string{" && ", " || "}[kind-2] + randomExpression(r, parts, depth-1) + ")"
	}
	p := &parts[r.IntN(len(parts))]
	name, there := p.named()
	from := p.values
	if from == nil {
		from = comparedValues
	}
	value := func() string { return from[r.IntN(len(from))] }
	text := value()
	whole := p.before + text
	if text == "" {
		text = "n"
	}
	switch kind := r.IntN(9); {
	case kind == 0 && there != "":
		return there
	case kind <= 1 && p.field == "client_ip":
		return fmt.Sprintf("in_cidr(client_ip, [%q, %q])", "10.0.0.0/16", "2001:db8::/64")
	case kind <= 2 && there != "":
		return fmt.Sprintf("int(%s) %s %d", name, []string{"<", "<=", ">", ">=", "==", "!="}[r.IntN(6)], []int{-3, 4, 5, 7, 10, 100}[r.IntN(6)])
	case kind == 3 && there != "":
		return fmt.Sprintf("int(%s) in [%d, %d]", name, r.IntN(8), r.IntN(8))
	case kind <= 4:
		return fmt.Sprintf("%s in [%q, %q]", name, whole, p.before+value())
	case kind == 5:
		return fmt.Sprintf("%s.startsWith(%q)", name, p.before+text[:1+r.IntN(len(text))])
	case kind == 6:
		return fmt.Sprintf("%s.endsWith(%q)", name, text[r.IntN(len(text)):])
	case kind == 7:
		return fmt.Sprintf("%s.%s(%q)", name, []string{"contains", "matches"}[r.IntN(2)], text[r.IntN(len(text)):])
	}
	return fmt.Sprintf("%s %s %q", name, []string{"==", "!="}[r.IntN(2)], whole)
}

func celPrograms(t *testing.T, expressions []string) (all []cel.Program) {
	t.Helper()
	options := []cel.EnvOption{cel.Function("in_cidr", cel.Overload("in_cidr", []*cel.Type{cel.StringType, cel.ListType(cel.StringType)}, cel.BoolType,
		cel.BinaryBinding(func(address, networks ref.Val) ref.Val {
			for it := networks.(traits.Lister).Iterator(); it.HasNext() == types.True; {
				if netip.MustParsePrefix(it.Next().Value().(string)).Contains(netip.MustParseAddr(address.Value().(string))) {
					return types.True
				}
			}
			return types.False
		})))}
	for _, name := range []string{"request.method", "request.path", "request.url_path", "request.host", "request.scheme", "client_ip", "source.address"} {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	for _, name := range []string{"request.headers", "query", "cookie", "jwt_claim", "property", "request_json"} {
		options = append(options, cel.Variable(name, cel.MapType(cel.StringType, cel.StringType)))
	}
	options = append(options, cel.Variable("path_segment", cel.MapType(cel.IntType, cel.StringType)),
		cel.Variable("destination", cel.DynType), cel.Variable("xds", cel.DynType), cel.Variable("metadata", cel.DynType))
	env := must.Get(cel.NewEnv(options...))(t)
	for _, expression := range expressions {
		checked, issues := env.Compile(expression)
		must.OKf(t, issues.Err(), "%s", expression)
		program := must.Get(env.Program(checked))(t)
		all = append(all, program)
	}
	return all
}

// A rule whose match has an expression applies to the requests for which cel-go says that the
// expression is true. It does not where that is false, or an error because of an absent value.
func TestExpressions(t *testing.T) {
	const count = 200
	onEach(t, 1, func(t *testing.T, d driver) {
		var parts []compared
		for _, p := range compareds() {
			if p.source == "" { // expressions name no other source of a claim
				parts = append(parts, p)
			}
		}
		r := rand.New(rand.NewPCG(56, 1))
		expressions := expressionsByHand
		if e, ok := d.(envoys); ok && e.native { // a module reads no metadata
			expressions = slices.DeleteFunc(slices.Clone(expressions), func(text string) bool { return strings.Contains(text, "metadata.") })
		}
		for len(expressions) < count {
			expressions = append(expressions, randomExpression(r, parts, 3))
		}
		programs := celPrograms(t, expressions)
		var rules []string
		for i, expression := range expressions {
			text, _ := json.Marshal(expression)
			rules = append(rules, fmt.Sprintf(`{"name": "c%d", "match": {"if": %s}, "limits": [{"limit": 1000000, "window": "1h", "algorithm": "fixed_window"}]}`, i, text))
		}
		configuration := `{"rules": [` + strings.Join(rules, ", ") + `], "headers": ["ratelimit"]}`
		compile := exec.CommandContext(t.Context(), commandFile, "compile", "-")
		compile.Stdin = strings.NewReader(configuration)
		compiled := must.Get(compile.Output())(t)
		n := d.node(t, nodeConfig{workers: 1, trustedHops: 2, stopsHeadersOnly: true, configuration: string(compiled)})
		must.Contains(t, fmt.Sprint(n.configure(configuration)), "weir compile", "the plugin takes expressions")
		client := client(t)
		seen := make([][2]bool, count)
		for range 150 {
			made, values := randomRequest(r, parts)
			got := ask(t, client, n.url(), made.fields()...)
			maps := map[string]map[string]string{}
			of := map[string]any{"path_segment": map[int64]string{1: "s"}}
			for i, value := range values {
				p := &parts[i]
				switch name, there := p.named(); {
				case p.field == "path_segment":
					of["path_segment"] = map[int64]string{1: "s", 2: *value}
				case there == "":
					of[name] = *value
				default:
					name, _, _ = strings.Cut(name, "[")
					if maps[name] == nil {
						maps[name] = map[string]string{}
						of[name] = maps[name]
					}
					if value != nil {
						maps[name][p.name] = *value
					}
				}
			}
			// Names of headers are in lower case, as Envoy has them.
			if value, ok := maps["request.headers"]["x-a"]; ok {
				maps["request.headers"]["X-A"] = value
			}
			of["request.path"], of["request.scheme"], of["source.address"] = made.path+made.query, "http", of["client_ip"]
			of["destination"], of["xds"], of["metadata"] = map[string]any{"port": 8080}, map[string]any{}, map[string]any{"filter_metadata": map[string]any{}}
			applied := got.rules()
			for i, program := range programs {
				result, _, err := program.Eval(of)
				holds := err == nil && result == types.True
				if seen[i][map[bool]int{true: 1}[holds]] = true; applied[fmt.Sprint("c", i)] != holds {
					t.Errorf("%s\n%s\n%q: applies is %v, but CEL says %v, %v", expressions[i], compiled, made.fields(), !holds, result, err)
				}
			}
			if t.Failed() {
				return
			}
		}
		both := 0
		for _, outcomes := range seen {
			if outcomes[0] && outcomes[1] {
				both++
			}
		}
		t.Logf("%d of %d expressions are true for some requests, and not for others", both, count)
		must.AtLeast(t, both, count*3/4, "expressions that are true for some requests, and not for others")
	})
}
