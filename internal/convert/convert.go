// Package convert turns configurations of other limiters into Weir's. [Convert] reads files of one
// source, and lists the places that Weir can't express.
package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/config"

	"go.yaml.in/yaml/v4"
)

// File is a file to convert.
type File struct {
	Name string
	Text []byte
}

// Loss is a place of a file that the configuration does not express in full.
type Loss struct {
	File         string
	Line, Column int
	Problem      string
}

// String returns the loss as FILE:LINE:COLUMN: PROBLEM.
func (l Loss) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", l.File, l.Line, l.Column, l.Problem)
}

// Result is the outcome of a conversion.
type Result struct {
	// Document is the configuration, or RateLimitPolicies, as JSON. It is empty if no rule is left.
	Document []byte
	// Lost has the losses in the order of the files.
	Lost []Loss
}

// sources has the reader of each source's files.
var sources = map[string]func(*converter){
	"ratelimit": (*converter).rateLimit,
	"nginx":     (*converter).nginx,
	"kong":      (*converter).kong,
	"apisix":    (*converter).apisix,
	"policies":  (*converter).readPolicies,
}

// Sources returns the names of the sources that Convert knows.
func Sources() []string { return slices.Sorted(maps.Keys(sources)) }

// Convert converts files of a source. If a file can't be read, the error says where and why.
// Otherwise the plugin accepts the document.
func Convert(source string, files []File) (*Result, error) {
	read := sources[source]
	if read == nil {
		return nil, fmt.Errorf("want one of %s", strings.Join(Sources(), ", "))
	}
	c := &converter{files: files, names: map[string]bool{}, mappings: map[*yaml.Node]mapping{}}
	if read(c); c.err != nil {
		return nil, c.err
	}
	order := map[string]int{}
	for i, f := range files {
		order[f.Name] = i
	}
	slices.SortStableFunc(c.lost, func(a, b Loss) int {
		return cmp.Or(order[a.File]-order[b.File], a.Line-b.Line, a.Column-b.Column)
	})
	result := &Result{Lost: slices.Compact(c.lost)}
	var said any = c.said
	if len(c.policies) > 0 {
		said = map[string]any{"apiVersion": "v1", "kind": "List", "items": c.policies} // as kubectl takes them
	} else if len(c.said.Rules) == 0 {
		return result, nil
	}
	document, err := plainJSON(said, "  ")
	if err != nil {
		return nil, err
	}
	result.Document = fitted(document)
	if len(c.policies) == 0 {
		if _, err := config.Parse(result.Document); err != nil {
			return nil, fmt.Errorf("the plugin would refuse the configuration: %w", err)
		}
	}
	return result, nil
}

// converter collects a configuration while it reads a source's files.
type converter struct {
	files []File
	said  configuration
	// policies are in the place of a configuration.
	policies []*policy
	// without are policies that have no limits where others may have some.
	without []*policy
	names   map[string]bool // of rules
	lost    []Loss
	err     error
	values  int // in all files, counted each time that an alias or include repeats them
	// mappings are those that were read.
	mappings map[*yaml.Node]mapping
	// messages says that fields are those of protobuf's messages.
	messages bool
}

type place struct {
	file         string
	line, column int
}

func (c *converter) lose(at place, format string, args ...any) {
	c.lost = append(c.lost, Loss{at.file, at.line, at.column, fmt.Sprintf(format, args...)})
}

func (c *converter) fail(at place, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s:%d:%d: %w", at.file, at.line, at.column, fmt.Errorf(format, args...))
	}
}

// maxRules is the most rules that a configuration can have.
const maxRules = 256

// add adds a rule. It changes the name if the rule can't have it or another rule has it.
func (c *converter) add(at place, r rule) {
	if c.isFull(at) {
		return
	}
	if len(r.Except) > maxExcept {
		c.lose(at, "a rule has at most %d exceptions, and this needs %d", maxExcept, len(r.Except))
		r.Except = r.Except[:maxExcept]
	}
	r.Name = c.name(r.Name)
	if problem := mistakesOf(r); problem != "" {
		c.lose(at, "the plugin would refuse this rule: %s", problem)
		return
	}
	c.said.Rules = append(c.said.Rules, r)
}

// also narrows a rule to requests that fulfil another condition, too. It reports false if no rule
// can say that, or no request does both.
func (c *converter) also(at place, r *rule, m match) bool {
	var both match
	if r.Match != nil {
		both = *r.Match
	}
	if m.Path != nil {
		if both.Path != nil && !m.Path.within(*both.Path) {
			return false
		}
		both.Path = m.Path
	}
	both.Headers = maps.Clone(both.Headers)
	for name, t := range m.Headers {
		if both.narrow(name, t) {
			continue
		}
		if t.kind != present && both.Headers[name].kind != present {
			c.lose(at, "a rule has one condition for the header %.40s: what needs two is left out", name)
		}
		return false
	}
	r.Match = both.orNil()
	return true
}

// isFull reports whether there is no room for another rule, which is then lost.
func (c *converter) isFull(at place) bool {
	full := len(c.said.Rules) == maxRules
	if full {
		c.lose(at, "a configuration has at most %d rules", maxRules)
	}
	return full
}

// mistakesOf returns, on one line, why the plugin would refuse a rule, or nothing if the plugin
// accepts it. So a source's mistake, such as an impossible name of a header, costs only that rule,
// and is reported at its place.
func mistakesOf(r any) string {
	document, err := plainJSON(map[string]any{"backend": backend{backendCluster}, "rules": []any{r}}, "")
	if err == nil {
		_, err = config.Parse(document)
	}
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(err.Error(), "rules[0].", ""), "\n", "; ")
}

// shareCounters makes proxies share the counters of rules that have a rate. failure is the decision
// while the backend is away, and said is the value that asks for it.
func (c *converter) shareCounters(said value, failure string) {
	c.said.Backend = &backend{backendCluster}
	if c.said.OnBackendFailure == "" {
		c.said.OnBackendFailure = failure
	} else if c.said.OnBackendFailure != failure {
		said.lose("on_backend_failure is the same for all rules: %s", c.said.OnBackendFailure)
	}
}

// settle makes each proxy count alone by the rules without a rate, if other rules have one.
func (c *converter) settle() {
	alone := -1.0
	for i := range c.said.Rules {
		if r := &c.said.Rules[i]; c.said.Backend != nil && r.SyncRate == nil {
			r.SyncRate = &alone
		}
	}
}

const (
	maxExcept = 64
	maxName   = 64
)

func (c *converter) name(wanted string) string {
	letters := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, wanted)
	for strings.Contains(letters, "--") {
		letters = strings.ReplaceAll(letters, "--", "-")
	}
	if letters = strings.Trim(letters, "-"); letters == "" {
		letters = "rule"
	}
	name := letters[:min(len(letters), maxName)]
	for i := 2; c.names[name]; i++ {
		suffix := fmt.Sprint("-", i)
		name = letters[:min(len(letters), maxName-len(suffix))] + suffix
	}
	c.names[name] = true
	return name
}

// configuration has the fields of Weir's configuration that a conversion writes: see
// docs/configuration.md.
type configuration struct {
	Namespace        string    `json:"namespace,omitempty"`
	SyncRate         *float64  `json:"sync_rate,omitempty"`
	Backend          *backend  `json:"backend,omitempty"`
	OnBackendFailure string    `json:"on_backend_failure,omitempty"`
	Rules            []rule    `json:"rules"`
	Response         *response `json:"response,omitempty"`
}

type backend struct {
	Cluster string `json:"cluster"`
}

// backendCluster is the cluster of the counter backend in the examples of envoy/.
const backendCluster = "weir_backend"

type rule struct {
	Name          string     `json:"name"`
	Match         *match     `json:"match,omitempty"`
	Except        []any      `json:"except,omitempty"`
	Key           []any      `json:"key,omitempty"`
	Limits        []limit    `json:"limits"`
	Cost          any        `json:"cost,omitempty"`
	Delay         *delay     `json:"delay,omitempty"`
	CountRejected bool       `json:"count_rejected,omitempty"`
	Mode          string     `json:"mode,omitempty"`
	SyncRate      *float64   `json:"sync_rate,omitempty"`
	Headers       *[]string  `json:"headers,omitempty"`
	Response      *response  `json:"response,omitempty"`
	Overrides     *overrides `json:"overrides,omitempty"`
}

const (
	shadow      = "shadow"
	fixedWindow = "fixed_window"
	tokenBucket = "token_bucket"
	inFlight    = "in_flight"
	firstHit    = "first_hit"
	// maxQueue and maxDelayMillis are Weir's bounds on waiting requests.
	maxQueue       = 10_000
	maxDelayMillis = 5 * 60 * 1000
	clientIP       = "client_ip"
	wholeAddress   = 128
)

type limit struct {
	Limit     uint64 `json:"limit"`
	Window    string `json:"window,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Start     string `json:"start,omitempty"`
	Precision string `json:"precision,omitempty"`
	Zone      string `json:"zone,omitempty"`
	Burst     uint64 `json:"burst,omitempty"`
}

type delay struct {
	Most  string `json:"most"`
	Queue uint64 `json:"queue"`
}

type overrides struct {
	Keys []override `json:"keys"`
}

type override struct {
	Key    []string `json:"key"`
	Limits []limit  `json:"limits"`
}

type response struct {
	Status      int    `json:"status,omitempty"`
	Body        string `json:"body,omitempty"`
	ContentType string `json:"content_type,omitempty"`
}

// saying returns the JSON that Kong and APISIX write around a message of the configuration, or
// nothing if there is none.
func saying(field, message string) string {
	if message == "" {
		return ""
	}
	body, _ := plainJSON(map[string]string{field: message}, "") // a text has JSON
	return strings.TrimSuffix(string(body), "\n")
}

// responseOf returns a response with the source's status and body, which is JSON, or nil for Weir's
// default.
func (c *converter) responseOf(at place, status int, body string) *response {
	if status < 200 || status > 599 {
		c.lose(at, "want a status from 200 to 599, got %d", status)
		status = 0
	}
	r := &response{Status: status, Body: body}
	if body != "" {
		r.ContentType = "application/json; charset=utf-8"
	}
	if *r == (response{Status: 429}) || *r == (response{}) {
		return nil
	}
	return r
}

// addresses is an exception for clients.
type addresses struct {
	ClientIP []string `json:"client_ip"`
}

// plainJSON returns a value as JSON for people, which keeps < > and & as they are.
func plainJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}

// lineWidth is how long the lines of a document become at most, by joining.
const lineWidth = 100

// fitted returns indented JSON in which an object or array is on one line if it fits.
func fitted(indented []byte) []byte {
	var lines []string
	var open []int // the lines at which objects and arrays begin
	for line := range strings.Lines(string(indented)) {
		line = strings.TrimSuffix(line, "\n")
		lines = append(lines, line)
		text := strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(text, "{") || strings.HasSuffix(text, "["):
			open = append(open, len(lines)-1)
		case strings.HasPrefix(text, "}") || strings.HasPrefix(text, "]"):
			from := open[len(open)-1]
			open = open[:len(open)-1]
			whole := lines[from]
			for _, part := range lines[from+1:] {
				if strings.HasSuffix(whole, ",") {
					whole += " "
				}
				whole += strings.TrimSpace(part)
			}
			if utf8.RuneCountInString(whole) <= lineWidth {
				lines = append(lines[:from], whole)
			}
		}
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

// client returns the selector of the client's whole address.
func client() any {
	return map[string]any{clientIP: map[string]int{"ipv4_prefix": 32, "ipv6_prefix": wholeAddress}}
}

func one(kind, value string) any { return map[string]string{kind: value} }

// duration writes milliseconds as a duration in the largest unit that divides them.
func duration(millis uint64) string {
	for _, unit := range []struct {
		millis uint64
		name   string
	}{{86_400_000, "d"}, {3_600_000, "h"}, {60_000, "m"}, {1000, "s"}} {
		if millis%unit.millis == 0 && millis > 0 {
			return fmt.Sprint(millis/unit.millis, unit.name)
		}
	}
	return fmt.Sprint(millis, "ms")
}

// maxLimit and maxWindowMillis are Weir's largest limit and window.
const (
	maxLimit        = 999_999_999_999_999
	maxWindowMillis = 366 * 86_400_000
)

// smooth returns the delay under which waiting requests may wait for a rate, which is in thousandths
// of a request per perMillis. It returns nil if no request waits, or for longer than Weir's bounds.
func (c *converter) smooth(at place, thousandths, perMillis, waiting uint64) *delay {
	if waiting == 0 {
		return nil
	}
	high, low := bits.Mul64(waiting*1000, perMillis)
	if high != 0 || low/thousandths >= maxDelayMillis || waiting > maxQueue {
		c.lose(at, "up to %d requests wait: in Weir at most %d can wait, and less than five minutes", waiting, maxQueue)
		return nil
	}
	return &delay{Most: duration(low/thousandths + 1), Queue: waiting}
}

// leakyBucket returns a bucket of nginx: the rate is in thousandths of a request per perMillis, and
// burst is the number of requests that may come at once besides the first. It returns nil if Weir has
// no such bucket.
func (c *converter) leakyBucket(at place, thousandths, perMillis, burst uint64) *limit {
	if thousandths == 0 || thousandths > maxLimit {
		c.lose(at, "want a rate above 0")
		return nil
	}
	hits, window := thousandths, perMillis*1000
	divisor, rest := uint64(1000), hits%1000
	for rest != 0 {
		divisor, rest = rest, divisor%rest
	}
	hits, window = hits/divisor, window/divisor
	if window > maxWindowMillis || hits > maxLimit || burst >= maxLimit {
		c.lose(at, "want at most %d requests in at most 366 days", uint64(maxLimit))
		return nil
	}
	l := &limit{Limit: hits, Window: duration(window), Algorithm: tokenBucket}
	if burst+1 != hits {
		l.Burst = burst + 1
	}
	return l
}
