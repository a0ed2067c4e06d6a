package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/config"
	"weir/internal/calendar"
	"weir/internal/clientip"
	"weir/internal/failure"
	"weir/internal/fields"
	"weir/internal/jsonpath"
	"weir/internal/must"
	"weir/window"
)

// fieldPaths are all fields of the configuration. NAME stands for a user's name, and key.method for
// the selector that is a string. Each field has a document with a wrong value, with an unknown
// sibling, unless [tryMisspelled] gives it one, and with a wrong type.
var fieldPaths = []string{
	"namespace", "sync_rate", "backend", "backend.cluster", "backend.authority", "backend.token", "backend.key_secret", "backend.timeout",
	"on_backend_failure", "capacity", "rules", "response", "response.status", "response.body", "response.content_type",
	"response.headers", "response.headers.NAME", "response.grpc_status", "headers", "x_ratelimit_reset", "replicas", "replicas.property",

	"rules.name", "rules.match", "rules.match.path", "rules.match.path.exact", "rules.match.path.prefix",
	"rules.match.path.suffix", "rules.match.path.regex", "rules.match.path.present", "rules.match.host",
	"rules.match.path.in", "rules.match.method", "rules.match.query", "rules.match.query.NAME", "rules.match.query.NAME.in",
	"rules.match.query.NAME.above", "rules.match.query.NAME.below", "rules.match.cookie", "rules.match.cookie.NAME",
	"rules.match.path_segment", "rules.match.path_segment.NAME", "rules.match.jwt_claim", "rules.match.jwt_claim.NAME",
	"rules.match.jwt_claim.NAME.header", "rules.match.jwt_claim.NAME.metadata", "rules.match.property", "rules.match.property.NAME",
	"rules.match.client_ip", "rules.match.client_ip.in", "rules.match.any", "rules.match.not", "rules.match.if",
	"rules.match.headers", "rules.match.headers.NAME", "rules.match.methods", "rules.match.request_json", "rules.match.request_json.NAME", "rules.except", "rules.except.client_ip",
	"rules.except.path", "rules.except.host", "rules.except.headers", "rules.except.methods", "rules.key", "rules.limits", "rules.cost", "rules.cost.least", "rules.cost.most", "rules.cost_on_response", "rules.mode", "rules.reveal",
	"rules.count_rejected", "rules.sync_rate", "rules.headers", "rules.response", "rules.overrides", "rules.overrides.by",
	"rules.overrides.values", "rules.overrides.values.NAME", "rules.overrides.keys", "rules.overrides.keys.key", "rules.overrides.keys.limits",

	"rules.key.header", "rules.key.query", "rules.key.cookie", "rules.key.path_segment", "rules.key.method",
	"rules.key.host", "rules.key.path", "rules.key.regex", "rules.key.client_ip", "rules.key.client_ip.ipv4_prefix",
	"rules.key.client_ip.ipv6_prefix", "rules.key.jwt_claim", "rules.key.jwt_claim.header", "rules.key.jwt_claim.metadata", "rules.key.property",
	"rules.key.in_cidr", "rules.key.literal", "rules.key.request_json", "rules.key.request_json.default", "rules.key.request_json.longest",

	"rules.limits.limit", "rules.limits.window", "rules.limits.algorithm", "rules.limits.start",
	"rules.limits.precision", "rules.limits.burst", "rules.limits.limit_from", "rules.limits.limit_from.header",
	"rules.limits.limit_from.property", "rules.limits.limit_from.max",
}

// TestBad wants all errors of each document FIELD--MISTAKE.
func TestBad(t *testing.T) {
	var names []string
	for _, file := range config.ReadMistakes(t) {
		want := string(file.Refused)
		name := strings.TrimSuffix(file.Name, ".json")
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			c, err := config.Parse(file.Content)
			if err == nil {
				t.Fatal("accepted")
			}
			must.Equal(t, c, nil, "beside an error, the configuration")
			must.Equal(t, err.Error()+"\n", want, "errors")
			var all config.Errors
			if !errors.As(err, &all) || len(all) != strings.Count(want, "\n") {
				t.Errorf("error is %T of %d lines, want Errors of %d", err, len(all), strings.Count(want, "\n"))
			}
			must.Lacks(t, strings.ReplaceAll(err.Error(), "key_secret", ""), "secret", "errors")
		})
	}
	misspelled := tryMisspelled(t)
	for _, field := range fieldPaths {
		for _, mistake := range []string{"value", "sibling", "type"} {
			if name := field + "--" + mistake; !slices.Contains(names, name) && (mistake != "sibling" || !misspelled[field]) {
				t.Errorf("testdata/mistakes.txt lacks %s", name)
			}
		}
	}
}

var (
	// freeNames are objects whose fields have the names that a user gives them. Errors quote a name that is not
	// plain.
	freeNames = regexp.MustCompile(`\.(headers|request_json|values|query|cookie|path_segment|jwt_claim|property|of)$`)
	plainName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// tryMisspelled gives each field of the documents in good.txtar a sibling whose name is a letter longer, which
// is refused, and returns the fields.
func tryMisspelled(t *testing.T) map[string]bool {
	tried := map[string]bool{}
	for _, file := range config.ReadArchive(t, "good.txtar") {
		var root any
		must.OK(t, json.Unmarshal(file.Content, &root))
		var try func(in any, at, field string)
		try = func(in any, at, field string) {
			switch in := in.(type) {
			case []any:
				for i, element := range in {
					try(element, at+"["+strconv.Itoa(i)+"]", field)
				}
			case map[string]any:
				for _, name := range slices.Collect(maps.Keys(in)) {
					if freeNames.MatchString(field) {
						step := "." + name
						if !plainName.MatchString(name) {
							step = "[" + strconv.Quote(name) + "]"
						}
						try(in[name], at+step, field+".NAME")
						continue
					}
					at, field := strings.TrimPrefix(at+"."+name, "."), strings.TrimPrefix(field+"."+name, ".")
					try(in[name], at, field)
					in[name+"x"], tried[field] = 1, true
					document := must.Get(json.Marshal(root))(t)
					delete(in, name+"x")
					_, err := config.Parse(document)
					must.Equal(t, fmt.Sprint(err), at+`x: unknown field, did you mean "`+name+`"?`, "%s", document)
				}
			}
		}
		try(root, "", "")
	}
	return tried
}

// general is a configuration, and the settings for rules without their own response.
type general struct {
	config.Config
	SyncRate config.Duration
	Response config.Response
	Headers  fields.Set
}

func TestGood(t *testing.T) {
	second, minute := int64(config.Second), int64(config.Minute)
	sliding := func(width int64, ordinal uint8) window.Shape {
		return window.Shape{Kind: window.SlidingWindow, Width: width, Ordinal: ordinal}
	}
	fixed := func(width int64) window.Shape { return window.Shape{Kind: window.FixedWindow, Width: width} }
	one := []window.Limit{{Shape: sliding(second, 0), Max: 1}}
	path := func(op config.MatchOp, value string) config.Match {
		return config.Match{Path: &config.StringMatch{Op: op, Value: value}}
	}

	// The configuration with only the required fields.
	smallest := func() general {
		return general{
			Config: config.Config{
				Namespace: "default",
				Capacity:  65536,
				Rules:     []config.Rule{{Name: "all", Limits: []window.Limit{{Shape: sliding(minute, 0), Max: 100}}}},
			},
			SyncRate: -config.Second,
			Response: config.Response{
				Status:      429,
				Body:        `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":429}`,
				ContentType: "application/problem+json",
				GRPCStatus:  8,
				GRPCMessage: "Rate limit exceeded",
			},
			Headers: fields.All,
		}
	}
	noBody := smallest()
	noBody.Response.Status, noBody.Response.Body = 204, ""
	escaped := smallest()
	escaped.Namespace = "a"

	ofClasses := smallest()
	ofClasses.Rules = []config.Rule{{Name: "all", Limits: one, Classes: &config.Classes{By: config.Selector{Kind: config.SelectHeader, Name: "x-class"}, Of: []config.Class{
		{Name: "batch", Guaranteed: 100, Most: 500}, {Name: "interactive", Guaranteed: 600, Most: 1000}, {Name: "rest", Most: 1000},
	}}}}
	ofFair := smallest()
	ofFair.Rules = []config.Rule{{Name: "all", Limits: one, Key: []config.Selector{{Kind: config.SelectHost}}, Classes: &config.Classes{
		By: config.Selector{Kind: config.SelectHeader, Name: "x-class"}, Of: []config.Class{{Name: "rest", Most: 1000}}, Fair: true,
	}}}
	ofCalendar := smallest()
	ofCalendar.Rules = []config.Rule{{
		Name: "calendar", Limits: dated(t, 10), Overrides: config.Overrides{Keys: []config.KeyOverride{{Limits: dated(t, 20)}}},
	}}
	algorithms := smallest()
	algorithms.Rules = []config.Rule{
		{
			Name: "tokens", Cost: 1, CostFrom: &config.Selector{Kind: config.SelectHeader, Name: "x-cost"}, CostLeast: 1, CostMost: math.MaxUint64,
			CostOnResponse: &config.Selector{Kind: config.SelectResponseHeader, Name: "x-tokens"}, CountRejected: true,
			Limits: []window.Limit{
				{Shape: window.Shape{Kind: window.TokenBucket, Width: minute}, Max: 10, Burst: 10},
				{Shape: window.Shape{Kind: window.TokenBucket, Width: minute, Ordinal: 1}, Max: 10, Burst: 25},
				{Shape: window.Shape{Kind: window.TokenBucket, Width: minute, Ordinal: 2}, Max: 0, Burst: 1},
			},
		},
		{
			Name: "sliding", CostOnResponse: &config.Selector{Kind: config.SelectMethod},
			Limits: []window.Limit{
				{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: 3 * second / 2}, Max: 10},
				{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: 30 * second}, Max: 10},
				{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: window.LogPrecision}, Max: 500},
			},
		},
		{Name: "bounded", Cost: 1, CostFrom: &config.Selector{Kind: config.SelectHeader, Name: "x-cost"}, CostMost: 100, Limits: one},
		{Name: "method", Cost: 1, CostFrom: &config.Selector{Kind: config.SelectMethod}, CostLeast: 1, CostMost: math.MaxUint64, Limits: one},
		{
			Name: "equal", Cost: 1, CostFrom: &config.Selector{Kind: config.SelectClientIP, IPv4Prefix: 32, IPv6Prefix: 64},
			CostLeast: 999_999_999_999_999, CostMost: 999_999_999_999_999, Limits: one,
		},
	}
	eachRequest := func(failure failure.Mode) general {
		c := smallest()
		c.SyncRate, c.OnBackendFailure = 0, failure
		c.Backend = config.Backend{Cluster: "weir", Authority: "weir", Timeout: 200 * config.Millisecond}
		return c
	}
	networks := func(texts ...string) (list []clientip.Prefix) {
		for _, text := range texts {
			network, _ := clientip.ParsePrefix(text)
			list = append(list, network)
		}
		return list
	}
	tokens := func(hits, burst uint64, ordinal uint8) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: minute, Ordinal: ordinal}, Max: hits, Burst: burst}
	}
	perSecond := func(hits uint64) window.Limit { return window.Limit{Shape: sliding(second, 0), Max: hits} }
	own := smallest().Response
	own.Status, own.Body, own.Headers = 430, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":430}`, []config.Header{{Name: "x-a", Value: "b"}}
	selectors := smallest()
	selectors.Backend = config.Backend{Cluster: "weir", Authority: "weir", Timeout: 200 * config.Millisecond}
	selectors.Rules = []config.Rule{
		{
			Name: "all", SyncRate: 5 * config.Second, Shadow: true, Response: &own,
			Match: config.Match{
				Path: &config.StringMatch{Op: config.Regex, Value: "/v[0-9]+/.*"},
				Host: &config.StringMatch{Op: config.Suffix, Value: ".example"},
				Conditions: []config.Condition{
					{Of: config.Selector{Name: "x-plan"}, StringMatch: config.StringMatch{Op: config.Exact, Value: "free"}},
					{Of: config.Selector{Name: "x-debug"}, StringMatch: config.StringMatch{Op: config.Absent}},
					{Of: config.Selector{Kind: config.SelectBody, Name: "model"}, StringMatch: config.StringMatch{Op: config.Prefix, Value: "gpt-5"}},
					{Of: config.Selector{Kind: config.SelectBody, Name: "usage.tier"}, StringMatch: config.StringMatch{Op: config.Present}},
				},
			},
			Except: []config.Match{
				{Path: &config.StringMatch{Op: config.Exact, Value: "/health"}, Methods: []string{"GET"}},
				{Conditions: []config.Condition{{
					Of:          config.Selector{Kind: config.SelectClientIP},
					StringMatch: config.StringMatch{Op: config.InNetworks, Networks: networks("10.0.0.0/8", "2001:db8::/32")},
				}}},
			},
			Key: []config.Selector{
				{Kind: config.SelectHost}, {Kind: config.SelectQuery, Name: "user id"}, {Kind: config.SelectCookie, Name: "sid"},
				{Kind: config.SelectPathSegment, Segment: 2}, {Kind: config.SelectClaim, Name: "authorization", Claim: "sub"},
				{Kind: config.SelectClaim, Name: "x-token", Claim: "realm_access.roles.0"},
				{Kind: config.SelectClaim, Metadata: "verified", Claim: "sub"},
				{Kind: config.SelectProperty, Name: "metadata\x00filter_metadata\x00x.y"},
				{Kind: config.SelectInNetworks, Networks: networks("10.0.0.0/8")},
				{Kind: config.SelectLiteral, Name: "a\x00b"},
				{Kind: config.SelectBody, Name: "model", Longest: 256},
				{Kind: config.SelectBody, Name: `a\.b.0`, Default: "none", Longest: 4096, Group: "(x).*"},
				{Kind: config.SelectQuery, Name: "t", Group: "t-(.*)"},
			},
			Limits: []window.Limit{perSecond(10), tokens(5, 5, 0), tokens(5, 7, 1)},
			LimitFrom: []config.LimitFrom{
				{Limit: 1, From: config.Selector{Kind: config.SelectProperty, Name: "a\x00b"}, Max: 10000},
				{Limit: 2, From: config.Selector{Kind: config.SelectHeader, Name: "x-limit"}, Max: 9, Bursts: true},
			},
		},
		{
			Name: "plans", Key: []config.Selector{{Kind: config.SelectHeader, Name: "x-user"}},
			Limits: []window.Limit{perSecond(10), tokens(5, 5, 0)},
			Overrides: config.Overrides{
				Keys: []config.KeyOverride{{Key: []string{"ann"}, Limits: []window.Limit{perSecond(20), tokens(6, 9, 0)}}},
				By:   &config.Selector{Kind: config.SelectHeader, Name: "x-plan"},
				Values: []config.ValueOverride{
					{Value: "", Limits: []window.Limit{perSecond(0), tokens(0, 1, 0)}},
					{Value: "gold", Limits: []window.Limit{perSecond(100), tokens(5, 5, 0)}},
				},
			},
		},
	}
	number := func(text string) *jsonpath.Decimal {
		n, _ := jsonpath.ParseDecimal([]byte(text))
		return &n
	}
	texts := func(texts ...string) (m config.StringMatch) {
		m.Op, m.Texts = config.In, map[string]struct{}{}
		for _, text := range texts {
			m.Texts[text] = struct{}{}
		}
		return m
	}
	on := func(kind config.SelectorKind, name string, m config.StringMatch) config.Condition {
		return config.Condition{Of: config.Selector{Kind: kind, Name: name}, StringMatch: m}
	}
	from := func(texts ...string) config.Condition {
		return on(config.SelectClientIP, "", config.StringMatch{Op: config.InNetworks, Networks: networks(texts...)})
	}
	under := texts("/a", "/b", "*")
	conditions := smallest()
	conditions.Rules = []config.Rule{{
		Name: "all", Limits: one,
		Match: config.Match{
			Path: &under,
			Conditions: []config.Condition{
				from("10.0.0.0/8", "2001:db8::/32"),
				on(config.SelectCookie, "sid", config.StringMatch{Op: config.Present}),
				on(config.SelectHeader, "x-size", config.StringMatch{Op: config.Between, Above: number("-1.5"), Below: number("1e3")}),
				{
					Of:          config.Selector{Kind: config.SelectClaim, Metadata: "verified", Claim: "n"},
					StringMatch: config.StringMatch{Op: config.Between, Below: number("0")},
				},
				{
					Of:          config.Selector{Kind: config.SelectClaim, Name: "authorization", Claim: "plan"},
					StringMatch: config.StringMatch{Op: config.Prefix, Value: "gold"},
				},
				{
					Of:          config.Selector{Kind: config.SelectClaim, Name: "x-token", Claim: "sub"},
					StringMatch: config.StringMatch{Op: config.Suffix, Value: "x"},
				},
				on(config.SelectMethod, "", texts("GET", "HEAD")),
				{Of: config.Selector{Kind: config.SelectPathSegment, Segment: 2}, StringMatch: config.StringMatch{Value: "v1"}},
				on(config.SelectProperty, "metadata\x00filter_metadata\x00x.y\x00z", config.StringMatch{Op: config.Regex, Value: "a+"}),
				on(config.SelectQuery, "page", config.StringMatch{Op: config.Between, Above: number("100")}),
				on(config.SelectQuery, "user id", texts("ann", "")),
			},
			Any: []config.Match{
				{Host: &config.StringMatch{Value: "a.example"}, Conditions: []config.Condition{from("10.0.0.1/32")}},
				{
					Any: []config.Match{
						{Conditions: []config.Condition{from("::1/128")}},
						{Conditions: []config.Condition{on(config.SelectMethod, "", config.StringMatch{Op: config.Prefix, Value: "P"})}},
					},
					Not: &config.Match{Conditions: []config.Condition{on(config.SelectClientIP, "", config.StringMatch{Op: config.Prefix, Value: "10."})}},
				},
			},
			Not: &config.Match{Not: &config.Match{
				Conditions: []config.Condition{on(config.SelectBody, "model", config.StringMatch{Op: config.Present})},
			}},
		},
		Except: []config.Match{
			{Path: &config.StringMatch{Value: "/"}, Conditions: []config.Condition{from("10.0.0.0/8")}},
			{Any: []config.Match{{Methods: []string{"GET"}}}},
		},
	}}
	tests := map[string]general{
		"conditions":           conditions,
		"selectors":            selectors,
		"each-request":         eachRequest(failure.Deny),
		"failure-allows":       eachRequest(failure.Allow),
		"smallest":             smallest(),
		"defaults-written-out": smallest(),
		"unused-backend":       smallest(),
		"no-body":              noBody,
		"escaped-names":        escaped,
		"everything": {SyncRate: 250 * config.Millisecond, Config: config.Config{
			Namespace: "shop.eu-1_a",
			Backend: config.Backend{
				Cluster:   "outbound|9180||weir.default.svc.cluster.local",
				Authority: "weir.example:9180",
				Token:     "s3cret",
				KeySecret: "0123456789abcdef",
				Timeout:   1500 * config.Millisecond,
			},
			Capacity: 1 << 24,
			Rules: []config.Rule{
				{
					Name: "per-user_1",
					Match: config.Match{
						Path:    &config.StringMatch{Op: config.Prefix, Value: "/api/"},
						Methods: []string{"GET", "PURGE"},
					},
					Key: []config.Selector{
						{Kind: config.SelectHeader, Name: "x-user"},
						{Kind: config.SelectHeader, Name: ":authority"},
						{Kind: config.SelectClientIP, IPv4Prefix: 32, IPv6Prefix: 64},
						{Kind: config.SelectClientIP, IPv4Prefix: 32, IPv6Prefix: 48},
						{Kind: config.SelectClientIP, IPv4Prefix: 24, IPv6Prefix: 128},
						{Kind: config.SelectClientIP, IPv4Prefix: 32, IPv6Prefix: 64},
						{Kind: config.SelectMethod},
						{Kind: config.SelectPath},
					},
					Limits: []window.Limit{
						{Shape: sliding(minute, 0), Max: 100},
						{Shape: sliding(int64(config.Millisecond), 0), Max: 0},
						{Shape: fixed(366 * 24 * 60 * minute), Max: 999_999_999_999_999},
						{Shape: window.Shape{Kind: window.FirstHitWindow, Width: 90 * minute}, Max: 5},
						{Shape: sliding(minute, 1), Max: 50},
						{Shape: fixed(90 * minute), Max: 5},
						{Shape: sliding(minute, 2), Max: 10},
					},
				},
				{Name: "exact", Match: path(config.Exact, "*"), Limits: one},
				{Name: "suffix", Match: path(config.Suffix, ".png"), Limits: one},
				{Name: "present", Match: path(config.Present, ""), Limits: one},
				{Name: "absent", Match: path(config.Absent, ""), Limits: one},
			},
			ResetUnit: fields.Milliseconds,
		},
			Response: config.Response{
				Status:      503,
				Body:        "slow down ä\n",
				ContentType: "text/plain; charset=utf-8",
				Headers:     []config.Header{{Name: "retry"}, {Name: "x-reason", Value: "rate limit"}},
				GRPCStatus:  14,
				GRPCMessage: "slow down ä\n",
			},
			Headers: fields.RateLimit | fields.RetryAfter,
		},
		"algorithms": algorithms,
		"calendar":   ofCalendar,
		"classes":    ofClasses,
		"fair":       ofFair,
		// As Envoy prints a Struct: any order, numbers as doubles.
		"struct": {SyncRate: config.Second, Config: config.Config{
			Namespace: "default",
			Backend:   config.Backend{Cluster: "weir", Authority: "weir", Timeout: 100 * config.Millisecond},
			Capacity:  100,
			Rules: []config.Rule{{
				Name: "r",
				Key:  []config.Selector{{Kind: config.SelectClientIP, IPv4Prefix: 0, IPv6Prefix: 56}},
				Limits: []window.Limit{
					{Shape: sliding(minute, 0), Max: 1000},
					{Shape: fixed(second / 2), Max: 999_999_999_999_999},
				},
			}},
		},
			Response: config.Response{Status: 403, Body: "no", ContentType: "text/plain", GRPCMessage: "no"},
		},
	}
	files := config.ReadArchive(t, "good.txtar")
	must.Equal(t, len(files), len(tests), "documents for as many tests")
	for _, file := range files {
		name := strings.TrimSuffix(file.Name, ".json")
		want, ok := tests[name]
		must.Equal(t, ok, true, "testdata/good.txtar has %s, which no test knows", file.Name)
		for i := range want.Rules {
			rule := &want.Rules[i]
			if name != "algorithms" {
				rule.Cost = 1
			}
			if rule.Response == nil {
				rule.SyncRate, rule.Headers, rule.Response = want.SyncRate, want.Headers, &want.Response
			}
		}
		t.Run(name, func(t *testing.T) {
			got := must.Get(config.Parse(file.Content))(t)
			if got.Digest == 0 {
				t.Error("no digest")
			}
			got.Digest = 0
			must.Same(t, *got, want.Config, "")
			checkInvariants(t, got)
		})
	}
}

// Configurations that decide differently have different digests, and the same numbers in another form have the same.
func TestDigestOfNumbers(t *testing.T) {
	t.Parallel()
	digest := func(above string) uint64 {
		return must.Get(config.Parse([]byte(`{"rules": [{"name": "r", "match": {"query": {"n": {"above": ` + above + `}}}, "limits": [{"limit": 1, "window": "1s"}]}]}`)))(t).Digest
	}
	must.Equal(t, digest("100"), digest("1e2"), "100 and 1e2")
	must.Equal(t, digest("-5") == digest("5"), false, "-5 and 5 have the same digest")
}

// dated returns limits of the calendar.
func dated(t *testing.T, hits uint64) (limits []window.Limit) {
	t.Helper()
	for _, of := range []struct {
		period    calendar.Period
		zone      string
		day, hour int
	}{{calendar.Day, "UTC", 0, 0}, {calendar.Week, "America/New_York", 7, 0}, {calendar.Month, "Europe/Berlin", 31, 23}} {
		c, fault := calendar.New(of.period, of.zone, of.day, of.hour)
		must.EqualOrEnd(t, fault, calendar.Sound, "%+v: fault", of)
		limits = append(limits, window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: calendar.Lengths[of.period]}, Max: hits, Calendar: c})
	}
	return limits
}

// Servers accept the :authority of callouts, unless it is given.
func TestDefaultAuthority(t *testing.T) {
	for cluster, want := range map[string]string{
		"weir": "weir",
		"outbound|9180||weir.weir-system.svc.cluster.local": "weir.weir-system.svc.cluster.local",
		"odd|": "odd|",
	} {
		got := must.Get(config.Parse([]byte(`{"backend": {"cluster": "` + cluster +
			`"}, "rules": [{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}]}`)))(t)
		must.Equal(t, got.Backend.Authority, want, "%s", cluster)
	}
}

// TestParseBounds checks the documented bounds of a document.
func TestParseBounds(t *testing.T) {
	const small = `{"rules": [{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}]}`
	padded := small + strings.Repeat(" ", 1<<20-len(small))
	must.Get(config.Parse([]byte(padded)))(t)
	_, err := config.Parse([]byte(padded + " "))
	must.Equal(t, fmt.Sprint(err), "want at most 1048576 bytes, got 1048577", "1 MiB and a byte")
	// Depth counts the document itself.
	for depth, want := range map[int]string{64: "want an object", 65: "nested more than 64 deep"} {
		_, err := config.Parse([]byte(strings.Repeat("[", depth) + strings.Repeat("]", depth)))
		must.Contains(t, fmt.Sprint(err), want, "%d deep", depth)
	}
}

// TestParseManyErrors checks that the answer to a hostile document is bounded.
func TestParseManyErrors(t *testing.T) {
	document := "{" + strings.Repeat(`"a":1,`, 1<<20/6-10) + `"b":1}`
	_, err := config.Parse([]byte(document))
	var all config.Errors
	if !errors.As(err, &all) || len(all) != 1001 || all[1000].Problem != "too many errors, the rest are left out" {
		t.Fatalf("got %T of %d errors, want 1000 and a note", err, len(all))
	}
}

// TestParseCopies checks that the caller may reuse the document's bytes.
func TestParseCopies(t *testing.T) {
	document := []byte(`{"namespace": "shop", "rules": [{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}]}`)
	c := must.Get(config.Parse(document))(t)
	clear(document)
	must.Equal(t, c.Namespace, "shop", "the namespace")
	must.Equal(t, c.Rules[0].Name, "all", "the rule's name")
}

// gRPC clients get the operator's own body if it is a text that fits a header, and otherwise a
// sentence.
func TestGRPCMessage(t *testing.T) {
	const sentence = "Rate limit exceeded"
	long := strings.Repeat("x", 1024)
	for response, want := range map[string]string{
		`{}`:                        sentence,
		`{"status": 204}`:           sentence,
		`{"body": "later"}`:         "later",
		`{"body": ""}`:              "",
		`{"body": "` + long + `"}`:  long,
		`{"body": "x` + long + `"}`: sentence,
		`{"body": "later", "content_type": "Text/Plain ; charset=utf-8"}`: "later",
		`{"body": "<p>later", "content_type": "text/html"}`:               sentence,
		`{"body": "later", "content_type": "text/plainer"}`:               sentence,
		`{"content_type": "text/plain"}`:                                  sentence,
	} {
		c := must.Get(config.Parse([]byte(`{"response": ` + response + `, "rules": [{"name": "r", "limits": [{"limit": 1, "window": "1m"}]}]}`)))(t)
		must.Equal(t, c.Rules[0].Response.GRPCMessage, want, "%.80s", response)
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range slices.Concat(config.ReadMistakes(f), config.ReadArchive(f, "good.txtar")) {
		f.Add(file.Content)
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		c, err := config.Parse(document)
		if err == nil {
			checkInvariants(t, c)
			return
		}
		var all config.Errors
		if !errors.As(err, &all) || len(all) == 0 || c != nil {
			t.Fatalf("%T %v with configuration %v", err, err, c)
		}
		for _, e := range all {
			if e.Problem == "" || strings.ContainsAny(e.Error(), "\n\x00") {
				t.Errorf("bad error %q", e)
			}
		}
	})
}

// checkInvariants checks the invariants of Config and its parts.
func checkInvariants(t *testing.T, c *config.Config) {
	t.Helper()
	check := func(ok bool, what string) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %+v", what, *c)
		}
	}
	name := func(s, others string) bool {
		const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
		return 1 <= len(s) && len(s) <= 64 && strings.Trim(s, alphanumeric+others) == ""
	}
	check(name(c.Namespace, "._-"), "namespace")
	if !slices.ContainsFunc(c.Rules, func(r config.Rule) bool { return r.SyncRate >= 0 }) {
		check(reflect.DeepEqual(c.Backend, config.Backend{}), "unused backend")
	} else {
		b := c.Backend
		check(b.Cluster != "" && b.Authority != "", "backend")
		check(!strings.ContainsAny(b.Cluster+b.Authority+b.Token, " \r\n\x00"), "backend's strings")
		check(b.KeySecret == "" || len(b.KeySecret) >= config.MinKeySecret, "key secret")
		check(config.Millisecond <= b.Timeout && b.Timeout <= config.Minute && b.Timeout%config.Millisecond == 0, "timeout")
	}
	check(c.OnBackendFailure <= failure.Deny, "failure")
	check(1 <= c.Capacity && c.Capacity <= 1<<24, "capacity")
	check(c.ResetUnit <= fields.Milliseconds, "unit")
	check(1 <= len(c.Rules) && len(c.Rules) <= 256, "rules")
	names := map[string]bool{}
	for _, rule := range c.Rules {
		check(rule.SyncRate <= 0 || rule.SyncRate >= config.Millisecond && rule.SyncRate <= 24*config.Hour, "sync rate")
		check(rule.Headers < 16, "headers")
		r := rule.Response
		check(200 <= r.Status && r.Status <= 599 && r.ContentType != "" && 0 <= r.GRPCStatus && r.GRPCStatus <= 16, "response")
		check(slices.IsSortedFunc(r.Headers, func(a, b config.Header) int { return strings.Compare(a.Name, b.Name) }), "order")
		for _, h := range r.Headers {
			check(h.Name != "" && h.Name == strings.ToLower(h.Name) && !strings.ContainsAny(h.Name, ": "), "header's name")
			check(!strings.ContainsAny(h.Name+h.Value, "\r\n\x00"), "header "+h.Name)
		}
		check(name(rule.Name, "_-") && !names[rule.Name], "rule "+rule.Name)
		names[rule.Name] = true
		check(len(rule.Key) <= 16 && 1 <= len(rule.Limits) && len(rule.Limits) <= 8, "rule "+rule.Name)
		if p := rule.Match.Path; p != nil {
			check((p.Op >= config.Present) == (p.Value == "") && !strings.Contains(p.Value, "?"), "path")
		}
		if rule.CostFrom == nil && rule.CostFromBody == nil {
			check(rule.CostLeast == 0 && rule.CostMost == 0 && rule.Cost <= 999_999_999_999_999, "cost")
		} else {
			check(rule.CostLeast <= rule.CostMost && rule.CostMost > 0 && rule.CostLeast <= 999_999_999_999_999, "bounds of a cost")
		}
		for _, s := range rule.Key {
			named := []config.SelectorKind{config.SelectHeader, config.SelectQuery, config.SelectCookie, config.SelectClaim, config.SelectProperty, config.SelectBody}
			check(s.Kind == config.SelectLiteral || slices.Contains(named, s.Kind) == (s.Name != "" || s.Metadata != ""), "selector")
			check(s.Metadata == "" || s.Kind == config.SelectClaim && s.Name == "", "metadata")
			check(s.Kind != config.SelectHeader && s.Kind != config.SelectClaim || s.Name == strings.ToLower(s.Name), "header")
			check((s.Kind == config.SelectBody) == (s.Longest > 0), "the longest text of a body")
			check((s.Kind == config.SelectPathSegment) == (s.Segment > 0), "segment")
			check((s.Kind == config.SelectInNetworks) == (len(s.Networks) > 0), "networks")
			check((s.Kind == config.SelectClaim) == (s.Claim != ""), "claim")
			check(0 <= s.IPv4Prefix && s.IPv4Prefix <= 32 && 0 <= s.IPv6Prefix && s.IPv6Prefix <= 128, "prefix")
		}
		for _, limits := range otherLimits(&rule) {
			check(len(limits) == len(rule.Limits), "override")
			for i := range limits {
				check(i >= len(rule.Limits) || limits[i].Shape == rule.Limits[i].Shape, "shape of an override")
			}
		}
		for _, from := range rule.LimitFrom {
			check(0 <= from.Limit && from.Limit < len(rule.Limits) && from.Max <= 999_999_999_999_999, "limit from")
		}
		shapes := map[window.Shape]bool{}
		for _, l := range rule.Limits {
			check(!shapes[l.Shape], "same shape twice")
			shapes[l.Shape] = true
			check(window.FixedWindow <= l.Kind && l.Kind <= window.TokenBucket, "kind")
			check((l.Kind == window.SlidingBuckets) == (l.Precision > 0), "precision")
			check((l.Kind == window.TokenBucket) == (l.Burst > 0), "burst")
			check(l.Precision != window.LogPrecision || window.MaxStateSize(&l, true) <= window.MaxLogSize, "log")
			check(l.Max <= 999_999_999_999_999, "limit")
			width := config.Duration(l.Width)
			check(config.Millisecond <= width && width <= 366*24*config.Hour && width%config.Millisecond == 0, "width")
		}
	}
}

func otherLimits(rule *config.Rule) (all [][]window.Limit) {
	for _, o := range rule.Overrides.Keys {
		all = append(all, o.Limits)
	}
	for _, o := range rule.Overrides.Values {
		all = append(all, o.Limits)
	}
	return all
}
