package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/internal/must"
)

// compared is a part of requests that conditions compare.
type compared struct {
	// field and name are where a match has its conditions; source has fields beside the comparison.
	field, name, source string
	// before precedes each value, and absent says that the part may be missing.
	before string
	absent bool
	// values are those that requests have, and others those that all parts of texts have if nil.
	values []string
	// put gives a request the value. Absent parts are not put.
	put func(r *comparedRequest, value string)
}

// comparedRequest is made by the parts of a table.
type comparedRequest struct {
	headers             []string
	method, path, query string
	body                map[string]any
}

func (r *comparedRequest) header(name, value string) { r.headers = append(r.headers, name, value) }

var comparedValues = []string{"ann", "anna", "xann", "", "5", "007", "7.5", "-3", "1e2", "10", "4"}

func compareds() []compared {
	some := []string{"ann", "anna", "xann", "5"}
	return []compared{
		{field: "path", before: "/s/", values: some, put: func(r *comparedRequest, v string) { r.path = v }},
		{field: "host", values: some, put: func(r *comparedRequest, v string) { r.header("host", v) }},
		{field: "method", values: []string{"POST", "PUT", "PATCH"}, put: func(r *comparedRequest, v string) { r.method = v }},
		{field: "client_ip", values: []string{"10.0.0.1", "10.0.1.1", "11.0.0.2", "2001:db8::1"}, put: func(r *comparedRequest, v string) {
			r.header("x-forwarded-for", v+",10.9.9.9")
		}},
		{field: "headers", name: "x-a", absent: true, put: func(r *comparedRequest, v string) { r.header("x-a", v) }},
		{field: "query", name: "user name", absent: true, put: func(r *comparedRequest, v string) { r.query = "?user+name=" + url.QueryEscape(v) }},
		{field: "cookie", name: "sid", absent: true, put: func(r *comparedRequest, v string) { r.header("cookie", "a=b; sid="+v) }},
		// The path is /s/ and a value.
		{field: "path_segment", name: "2", values: some, put: func(*comparedRequest, string) {}},
		{field: "jwt_claim", name: "plan", absent: true, put: func(r *comparedRequest, v string) {
			payload, _ := json.Marshal(map[string]string{"plan": v})
			r.header("authorization", "Bearer "+token(string(payload)))
		}},
		{field: "jwt_claim", name: `a\.b.0`, source: `"header": "x-token", `, absent: true, put: func(r *comparedRequest, v string) {
			payload, _ := json.Marshal(map[string]any{"a.b": []string{v}})
			r.header("x-token", token(string(payload)))
		}},
		{field: "property", name: "request.headers.x-p", absent: true, put: func(r *comparedRequest, v string) { r.header("x-p", v) }},
		{field: "request_json", name: "model", absent: true, put: func(r *comparedRequest, v string) { r.body["model"] = v }},
	}
}

// comparison is a matcher, and which values it lets pass; nil stands for an absent one.
type comparison struct {
	text  string
	holds func(value *string) bool
}

func comparisons(c *compared) (all []comparison) {
	whole, begin, end, pattern, others := "ann", "an", "nn", "an*a?", []string{"5", "zzz"}
	switch c.field {
	case "method":
		whole, begin, end, pattern, others = "PUT", "PO", "T", "P(U|OS)T", []string{"PATCH"}
	case "client_ip":
		whole, begin, end, pattern, others = "10.0.0.1", "10.0.", ".1", "[0-9.]*", nil
	}
	whole, begin, pattern = c.before+whole, c.before+begin, c.before+pattern
	present := func(holds func(string) bool) func(*string) bool {
		return func(value *string) bool { return value != nil && holds(*value) }
	}
	add := func(text string, holds func(*string) bool) {
		all = append(all, comparison{"{" + c.source + text + "}", holds})
	}
	add(fmt.Sprintf(`"exact": %q`, whole), present(func(v string) bool { return v == whole }))
	add(fmt.Sprintf(`"prefix": %q`, begin), present(func(v string) bool { return strings.HasPrefix(v, begin) }))
	add(fmt.Sprintf(`"suffix": %q`, end), present(func(v string) bool { return strings.HasSuffix(v, end) }))
	re := regexp.MustCompile("^(?:" + pattern + ")$")
	add(fmt.Sprintf(`"regex": %q`, pattern), present(re.MatchString))
	add(`"present": true`, func(v *string) bool { return v != nil })
	add(`"present": false`, func(v *string) bool { return v == nil })
	if c.field == "client_ip" {
		add(`"in": ["10.0.1.0/24", "2001:db8::/32"]`, present(func(v string) bool { return v == "10.0.1.1" || v == "2001:db8::1" }))
		return all
	}
	set := []string{whole}
	for _, other := range others {
		set = append(set, c.before+other)
	}
	for i := range 2000 {
		if c.field != "method" {
			set = append(set, fmt.Sprint(c.before, "user-", i))
		}
	}
	in, _ := json.Marshal(set)
	add(`"in": `+string(in), present(func(v string) bool { return slices.Contains(set, v) }))
	if slices.Contains([]string{"path", "host", "method"}, c.field) {
		return all
	}
	number := func(holds func(float64) bool) func(*string) bool {
		return present(func(v string) bool {
			n, err := strconv.ParseFloat(v, 64)
			return err == nil && holds(n)
		})
	}
	add(`"above": 4`, number(func(n float64) bool { return n > 4 }))
	add(`"below": 7.5`, number(func(n float64) bool { return n < 7.5 }))
	add(`"above": -3, "below": 1e2`, number(func(n float64) bool { return -3 < n && n < 100 }))
	return all
}

// randomRequest returns a request with random values of parts; nil stands for an absent one.
func randomRequest(r *rand.Rand, parts []compared) (made comparedRequest, values []*string) {
	made, values = comparedRequest{body: map[string]any{"x": []int{1}}}, make([]*string, len(parts))
	for i := range parts {
		p := &parts[i]
		if p.absent && r.IntN(4) == 0 {
			continue
		}
		from := p.values
		if from == nil {
			from = comparedValues
		}
		value := p.before + from[r.IntN(len(from))]
		if p.field == "path_segment" {
			value = strings.TrimPrefix(made.path, "/s/")
		}
		values[i] = &value
		p.put(&made, value)
	}
	return made, values
}

// fields are the request's headers and body, as ask takes them.
func (r *comparedRequest) fields() []string {
	body, _ := json.Marshal(r.body)
	return append(r.headers, ":method", r.method, ":path", r.path+r.query, ":body", string(body), "content-type", "application/json")
}

// rules are those that apply to a request, by its answer.
func (r *reply) rules() map[string]bool {
	applied := map[string]bool{}
	for _, name := range regexp.MustCompile(`"(c[0-9]+)";q=`).FindAllStringSubmatch(strings.Join(r.header.Values("ratelimit-policy"), ","), -1) {
		applied[name[1]] = true
	}
	return applied
}

// Each comparison of each part of a request holds when it should: alone, under not, in any, and as an
// exception. The table is made of the grammar.
func TestConditions(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		parts := compareds()
		n := d.node(t, nodeConfig{workers: 1, trustedHops: 2, stopsHeadersOnly: true, configuration: perUser(`{"limit": 1, "window": "1s"}`)})
		address := must.Get(url.Parse(n.url()))(t)
		_, port, _ := net.SplitHostPort(address.Host)
		for _, form := range []struct {
			name, rule string
			denies     bool
		}{
			{"match", `"match": %s`, false},
			{"not", `"match": {"not": %s}`, true},
			{"any", `"match": {"any": [{"headers": {"x-none": {"present": true}}}, {"any": [%s]}]}`, false},
			{"except", `"except": [{"path": {"exact": "/none"}}, %s]`, true},
		} {
			type cell struct {
				of    int
				holds func(*string) bool
			}
			var cells []cell
			var rules []string
			add := func(of int, condition string, holds func(*string) bool) {
				rules = append(rules, fmt.Sprintf(`{"name": "c%d", `+form.rule+`, "limits": [{"limit": 1000000, "window": "1h", "algorithm": "fixed_window"}]}`, len(cells), condition))
				cells = append(cells, cell{of, holds})
			}
			for i := range parts {
				p := &parts[i]
				for _, c := range comparisons(p) {
					condition := c.text
					if p.name != "" {
						condition = fmt.Sprintf(`{%q: %s}`, p.name, condition)
					}
					add(i, fmt.Sprintf(`{%q: %s}`, p.field, condition), c.holds)
				}
			}
			// Envoy's numbers are compared as people write them.
			always := func(*string) bool { return true }
			never := func(*string) bool { return false }
			add(0, `{"property": {"destination.port": {"exact": "`+port+`"}}}`, always)
			add(0, `{"property": {"destination.port": {"above": 1, "below": 65536}}}`, always)
			add(0, `{"property": {"destination.port": {"below": 1}}}`, never)
			add(0, `{"property": {"no.such": {"present": true}}}`, never)
			must.OK(t, n.configure(`{"rules": [`+strings.Join(rules, ", ")+`], "headers": ["ratelimit"]}`))
			r := rand.New(rand.NewPCG(1, uint64(len(cells))))
			client := client(t)
			seen := make([][2]bool, len(cells))
			for range 150 {
				made, values := randomRequest(r, parts)
				got := ask(t, client, n.url(), made.fields()...)
				applied := got.rules()
				for i, c := range cells {
					holds := c.holds(values[c.of])
					if holds {
						seen[i][1] = true
					} else {
						seen[i][0] = true
					}
					if want := holds != form.denies; applied[fmt.Sprint("c", i)] != want {
						t.Errorf("%s: %.300s\n%q: applies is %v", form.name, rules[i], made.fields(), !want)
					}
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("%s: %d cells", form.name, len(cells))
			for i, c := range cells {
				if always := strings.Contains(rules[i], `"present": `) && !parts[c.of].absent; seen[i][0] != seen[i][1] && !always && !strings.Contains(rules[i], "port") {
					t.Errorf("%s: %.300s has one outcome only", form.name, rules[i])
				}
			}
		}
	})
}
