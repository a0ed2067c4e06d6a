// Package expression compiles expressions of CEL to the conditions that a rule's match has, so that
// the plugin needs no interpreter. It runs where configurations are checked, and is part of neither
// the plugin nor the library.
//
// A condition means what CEL says of the expression: of something that the request does not have,
// a comparison is neither true nor false, and neither is its negation. && and || still decide if
// their other side does. An expression that is not true in the end is not met.
package expression

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"

	"weir/internal/spelling"
)

// Error says why an expression can't be compiled. Line and Column count from 1; columns count
// characters.
type Error struct {
	Line, Column int
	Problem      string
}

func (e *Error) Error() string {
	if e.Line > 1 {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
	}
	return fmt.Sprintf("column %d: %s", e.Column, e.Problem)
}

// part is a part of a request: a field of a match, and a name in it unless it has none.
type part struct {
	field, name string
	// always means that each request has it.
	always bool
}

// parts are attributes with one value, which is a text.
var parts = map[string]part{
	"request.method":    {"method", "", true},
	"request.url_path":  {"path", "", true},
	"request.path":      {"headers", ":path", true},
	"request.host":      {"host", "", true},
	"request.scheme":    {"headers", ":scheme", true},
	"request.useragent": {"headers", "user-agent", false},
	"request.referer":   {"headers", "referer", false},
	"source.address":    {"client_ip", "", false},
	"client_ip":         {"client_ip", "", false},
}

// named are attributes with values by names, and the fields of a match that have these.
var named = map[string]string{
	"request.headers": "headers", "query": "query", "cookie": "cookie", "path_segment": "path_segment",
	"jwt_claim": "jwt_claim", "property": "property", "request_json": "request_json",
}

// attributes are those of Envoy's whose names are the property's path.
var attributes = []string{
	"request.protocol", "request.size", "source", "destination", "connection", "metadata", "filter_state", "xds",
}

const inNetworks = "in_cidr"

// environment is what expressions may name.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	texts := cel.ListType(cel.StringType)
	options := []cel.EnvOption{
		cel.ClearMacros(), cel.Macros(cel.HasMacro),
		cel.Function(inNetworks, cel.Overload(inNetworks, []*cel.Type{cel.StringType, texts}, cel.BoolType)),
	}
	for name := range parts {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	for name, field := range named {
		key := cel.StringType
		if field == "path_segment" {
			key = cel.IntType
		}
		options = append(options, cel.Variable(name, cel.MapType(key, cel.StringType)))
	}
	for _, name := range attributes {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	return cel.NewEnv(options...)
})

// Compile returns the fields of a match that is met where the expression is true.
func Compile(text string) ([]Field, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		e := issues.Errors()[0]
		line, column := max(e.Location.Line(), 1), max(e.Location.Column(), 0)
		rest := []rune(slices.Collect(strings.Lines(text + "\n"))[line-1])
		return nil, &Error{line, column + 1, words(e.Message, string(rest[min(column, len(rest)):]))}
	}
	c := compiler{tree: checked.NativeRep()}
	n := c.condition(c.tree.Expr(), true)
	if c.err != nil {
		return nil, c.err
	}
	return n.fields(), nil
}

// variable matches a variable, or a field of one.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9.]*`)

// words says in a person's words what cel-go says of an expression from some place on.
func words(message, rest string) string {
	if strings.HasPrefix(message, "undeclared reference to '") {
		known := slices.Concat(slices.Collect(maps.Keys(parts)), slices.Collect(maps.Keys(named)), attributes, []string{inNetworks, "has", "int"})
		slices.Sort(known)
		name := variable.FindString(rest)
		for _, other := range known {
			if spelling.Distance(name, other) <= len(other)/5 {
				return fmt.Sprintf("unknown name %s, did you mean %s?", name, other)
			}
		}
		return "want one of " + strings.Join(known, ", ") + ", got " + name
	}
	if types, found := strings.CutPrefix(message, "found no matching overload for '"); found {
		operator, types, _ := strings.Cut(types, "' applied to '")
		problem := strings.Trim(operator, "_@") + " does not take " + strings.TrimSuffix(types, "'")
		if strings.Contains(types, "string") && strings.Contains(types, "int") {
			problem += ": int(…) makes a number of a text"
		}
		return problem
	}
	if syntax, found := strings.CutPrefix(message, "Syntax error: "); found {
		message, _, _ = strings.Cut(syntax, " expecting ")
	}
	return "not CEL: " + message
}

// compiler compiles one expression, and keeps its first mistake.
type compiler struct {
	tree *ast.AST
	err  error
}

func (c *compiler) fail(at ast.Expr, problem string) node {
	if c.err == nil {
		location := c.tree.SourceInfo().GetStartLocation(at.ID())
		c.err = &Error{location.Line(), location.Column() + 1, problem}
	}
	return node{}
}

const (
	wantCondition = "want a condition on the request, of ==, !=, <, <=, >, >=, in, startsWith, endsWith, contains, matches, " +
		inNetworks + ", has, &&, || and !"
	wantPart = `want a part of the request on one side, such as request.headers["x-plan"], and a value on the other`
)

// condition returns when an expression is certainly true, or certainly false.
func (c *compiler) condition(e ast.Expr, wanted bool) node {
	if p, ok := c.part(e); ok {
		if c.tree.GetType(e.ID()) == cel.DynType {
			return p.compare("exact", fmt.Sprint(wanted))
		}
		return c.fail(e, wantCondition)
	}
	switch e.Kind() {
	case ast.SelectKind: // of has, because others are parts
		if p, ok := c.inside(e.AsSelect().Operand(), e.AsSelect().FieldName()); ok {
			return p.compare("present", wanted)
		}
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		if call.IsMemberFunction() {
			args = append([]ast.Expr{call.Target()}, args...)
		}
		if function := call.FunctionName(); function == operators.LogicalNot {
			return c.condition(args[0], !wanted)
		} else if function == operators.LogicalAnd || function == operators.LogicalOr {
			n := node{kind: anyOf}
			if (function == operators.LogicalAnd) == wanted {
				n.kind = allOf
			}
			for _, arg := range args {
				n.add(c.condition(arg, wanted))
			}
			return n
		} else if len(args) == 2 {
			return c.comparison(e, function, args[0], args[1], wanted)
		}
	}
	return c.fail(e, wantCondition)
}

// swapped are the operators that say the same with their sides swapped.
var swapped = map[string]string{
	operators.Equals: operators.Equals, operators.NotEquals: operators.NotEquals,
	operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals,
	operators.Greater: operators.Less, operators.GreaterEquals: operators.LessEquals,
}

// opposite are the operators that say the opposite of a number.
var opposite = map[string]string{
	operators.Equals: operators.NotEquals, operators.NotEquals: operators.Equals,
	operators.Less: operators.GreaterEquals, operators.LessEquals: operators.Greater,
	operators.Greater: operators.LessEquals, operators.GreaterEquals: operators.Less,
}

// comparison compiles what a function or an operator says of two arguments.
func (c *compiler) comparison(at ast.Expr, operator string, left, right ast.Expr, wanted bool) node {
	if operator == operators.In && right.Kind() != ast.ListKind {
		if p, ok := c.indexed(right, left); ok {
			return p.compare("present", wanted)
		}
		return c.fail(at, "want a list, or a name in quotes and what has names, such as request.headers")
	}
	if other := swapped[operator]; other != "" && left.Kind() == ast.LiteralKind {
		operator, left, right = other, right, left
	}
	numeric := left.Kind() == ast.CallKind && left.AsCall().FunctionName() == overloads.TypeConvertInt
	if numeric {
		left = left.AsCall().Args()[0]
	}
	p, ok := c.part(left)
	if !ok {
		return c.fail(at, wantPart)
	}
	values, list := []ast.Expr{right}, right.Kind() == ast.ListKind
	if list {
		values = right.AsList().Elements()
	}
	var texts []string
	var numbers []*big.Int
	for _, value := range values {
		if value.Kind() == ast.LiteralKind {
			switch literal := value.AsLiteral().Value().(type) {
			case string:
				texts = append(texts, literal)
			case int64:
				numbers = append(numbers, big.NewInt(literal))
			}
		}
	}
	switch n := len(values); {
	case n == 0:
		return c.fail(right, "want a value in the list")
	case list != (operator == operators.In || operator == inNetworks):
		return c.fail(right, "want a text or a number, or a list of these for in and "+inNetworks)
	case len(numbers) == n && operator != operators.In && opposite[operator] == "":
		return c.fail(at, wantCondition)
	case len(numbers) == n && numeric:
		return p.compareNumbers(operator, numbers, wanted)
	case len(numbers) == n && (operator == operators.In || operator == operators.Equals || operator == operators.NotEquals):
		for _, number := range numbers {
			texts = append(texts, number.String()) // attributes that are equal have this text
		}
	case len(numbers) == n:
		return p.order(operator, numbers[0], wanted)
	case len(texts) != n:
		return c.fail(right, "want texts in quotes, or whole numbers")
	case numeric:
		return c.fail(right, "want whole numbers")
	case operator == overloads.Matches:
		if _, err := syntax.Parse(texts[0], syntax.Perl); err != nil {
			return c.fail(right, "want a regular expression: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	case operator == operators.In && p.field == "client_ip" && slices.ContainsFunc(texts, isNoAddress):
		return c.fail(right, "want addresses for in, and "+inNetworks+"(client_ip, [...]) for networks")
	}
	n, ok := p.compareTexts(operator, texts)
	switch {
	case !ok:
		return c.fail(at, wantCondition)
	case wanted != (operator == operators.NotEquals):
		return n
	case p.always:
		return node{kind: noneOf, of: []node{n}}
	}
	return node{kind: allOf, of: []node{p.compare("present", true), {kind: noneOf, of: []node{n}}}}
}

func isNoAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err != nil
}

// compareTexts compiles a comparison with texts, and reports whether there is one.
func (p part) compareTexts(operator string, texts []string) (n node, ok bool) {
	slices.Sort(texts)
	texts = slices.Compact(texts)
	switch operator {
	case operators.Equals, operators.NotEquals:
		return p.compare("exact", texts[0]), true
	case operators.In:
		for i, text := range texts {
			if p.field == "client_ip" && strings.Contains(text, ":") {
				texts[i] += "/128"
			} else if p.field == "client_ip" {
				texts[i] += "/32"
			}
		}
		return p.compare("in", texts), true
	case inNetworks:
		return p.compare("in", texts), p.field == "client_ip"
	case overloads.StartsWith:
		return p.compare("prefix", texts[0]), true
	case overloads.EndsWith:
		return p.compare("suffix", texts[0]), true
	case overloads.Contains:
		return p.compare("regex", anywhere+regexp.QuoteMeta(texts[0])+anywhere), true
	case overloads.Matches:
		return p.compare("regex", whole(texts[0])), true
	}
	return n, false
}

const anywhere = "(?s:.*)"

// quoting matches an escaped character, or what stands between \Q and \E.
var quoting = regexp.MustCompile(`(?s)\\[^Q]|\\Q.*?(?:\\E|$)`)

// whole returns an expression that matches the texts that have a match of another.
func whole(expression string) string {
	before, after := anywhere, anywhere
	expression = quoting.ReplaceAllStringFunc(expression, func(text string) string {
		if quoted, found := strings.CutPrefix(text, `\Q`); found { // which would quote what follows, too
			return regexp.QuoteMeta(strings.TrimSuffix(quoted, `\E`))
		}
		return text
	})
	if !strings.Contains(expression, "|") && !strings.Contains(expression, "(?") {
		if rest, found := strings.CutPrefix(expression, "^"); found && !strings.ContainsAny(rest[:min(1, len(rest))], "*+?{") {
			expression, before = rest, ""
		}
		if rest, found := strings.CutSuffix(expression, "$"); found && !strings.HasSuffix(rest, `\`) {
			expression, after = rest, ""
		}
	} else {
		expression = "(?:" + expression + ")"
	}
	return before + expression + after
}

// Numbers of CEL are above and below these.
var (
	one   = big.NewInt(1)
	above = new(big.Int).Sub(new(big.Int).Neg(below), one)
	below = new(big.Int).Lsh(one, 63)
)

// compareNumbers compiles a comparison of the part, if it is a whole number, with numbers.
func (p part) compareNumbers(operator string, numbers []*big.Int, wanted bool) node {
	combined := node{kind: anyOf}
	if operator == operators.In {
		operator = operators.Equals
		if !wanted {
			combined.kind = allOf
		}
	}
	if !wanted {
		operator = opposite[operator]
	}
	// CEL makes a number of nothing else.
	digits := p.compare("regex", "-?[0-9]+")
	for _, n := range numbers {
		next, last := new(big.Int).Add(n, one), new(big.Int).Sub(n, one)
		var is node
		switch operator {
		case operators.Equals:
			is = p.between(last, next)
		case operators.NotEquals:
			is = node{kind: anyOf, of: []node{p.between(above, n), p.between(n, below)}}
		case operators.Less:
			is = p.between(above, n)
		case operators.LessEquals:
			is = p.between(above, next)
		case operators.Greater:
			is = p.between(n, below)
		case operators.GreaterEquals:
			is = p.between(last, below)
		}
		combined.add(is)
	}
	return node{kind: allOf, of: []node{combined, digits}}
}

// order compiles a comparison of an attribute that may have a fraction, as metadata does.
func (p part) order(operator string, n *big.Int, wanted bool) node {
	if !wanted {
		operator = opposite[operator]
	}
	how := "below"
	if operator == operators.Greater || operator == operators.GreaterEquals {
		how = "above"
	}
	beyond := p.compare(how, n)
	if operator == operators.Less || operator == operators.Greater {
		return beyond
	}
	return node{kind: anyOf, of: []node{beyond, p.compare("exact", n.String())}}
}

func (p part) between(low, high *big.Int) node {
	return node{part: p, comparison: fmt.Sprintf(`{"above":%v,"below":%v}`, low, high)}
}

func (p part) compare(how string, value any) node {
	return node{part: p, comparison: object(Field{how, encoded(value)})}
}

// part returns the part of a request that an expression is, if it is one.
func (c *compiler) part(e ast.Expr) (p part, ok bool) {
	if p, ok = parts[c.name(e)]; ok {
		return p, true
	}
	switch {
	case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
		return c.inside(e.AsSelect().Operand(), e.AsSelect().FieldName())
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		return c.indexed(e.AsCall().Args()[0], e.AsCall().Args()[1])
	case slices.Contains(attributes, c.name(e)):
		return part{field: "property", name: c.name(e)}, true
	}
	return part{}, false
}

// indexed is inside for a name that is a literal.
func (c *compiler) indexed(of, by ast.Expr) (p part, ok bool) {
	if by.Kind() != ast.LiteralKind {
		return part{}, false
	}
	return c.inside(of, fmt.Sprint(by.AsLiteral().Value()))
}

// special are the characters that mean something else in a path.
var special = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// inside returns the part with a name in another.
func (c *compiler) inside(e ast.Expr, name string) (p part, ok bool) {
	if field := named[c.name(e)]; field != "" {
		if field == "headers" {
			name = strings.ToLower(name)
		}
		if name == "" {
			c.fail(e, "want a name, got an empty text")
		}
		return part{field, name, field == "headers" && (name == ":path" || name == ":scheme")}, true
	}
	p, ok = c.part(e)
	if !ok || p.field != "property" || c.tree.GetType(e.ID()) != cel.DynType {
		return part{}, false
	}
	p.name += "." + special.ReplaceAllStringFunc(name, func(character string) string { return `\` + character })
	return p, true
}

// name returns the variable that an expression is, or "".
func (c *compiler) name(e ast.Expr) string {
	if reference := c.tree.ReferenceMap()[e.ID()]; reference != nil {
		return reference.Name
	}
	return ""
}

func encoded(value any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // texts, lists of texts, numbers and booleans have a form
	return strings.TrimSuffix(b.String(), "\n")
}
