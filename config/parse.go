package config

import (
	"slices"
	"strconv"
	"strings"

	"weir/internal/failure"
	"weir/internal/fields"
	"weir/internal/wire"
)

// Bounds that the configuration reference does not fix.
const (
	maxDocument     = 1 << 20
	maxCapacity     = 1 << 24
	defaultCapacity = 1 << 16
	maxClusterName  = 512
	maxTokenBytes   = 8192
	maxTimeout      = Minute
	defaultTimeout  = 200 * Millisecond
	maxSyncRate     = day
	maxUsagePath    = 256
)

// like is an example of a small configuration, for errors.
const like = `{"rules": [{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}]}`

// Parse reads and checks a configuration as Envoy passes it to the plugin: a JSON document, or a
// serialized google.protobuf.Struct, of at most 1 MiB, also after conversion to JSON. Any error is
// of type [Errors] and has every mistake. If the document is of neither form, that is the only
// mistake. Parse does not keep the document's bytes.
//
// Where the document has the number of replicas in a property, Parse divides no limits: only a proxy
// has it. See [ParseIn].
func Parse(document []byte) (*Config, error) { return ParseIn(document, nil) }

// ParseIn is Parse in a proxy, whose properties it reads as text: "" is one that is not there. Zero
// bytes separate the parts of a path.
func ParseIn(document []byte, property func(path string) string) (*Config, error) {
	r := report{document: string(document), shares: shares{property: property}}
	var c *Config
	if problem, at := r.checkDocument(); problem != "" {
		r.add(at, "", problem)
	} else {
		v := parse(&r)
		c = readConfig(v)
		c.Digest = v.digest()
	}
	if errs := r.errors(); len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// checkDocument checks the form of the document as a whole, and converts it to JSON. It returns the
// problem, or "", and its offset.
func (r *report) checkDocument() (problem string, at int) {
	if len(r.document) > maxDocument {
		return "want at most " + strconv.Itoa(maxDocument) + " bytes, got " + strconv.Itoa(len(r.document)), 0
	}
	kind := kindOf(r.document)
	if kind == documentStruct {
		r.document, problem = structJSON(r.document)
	}
	s := scanner{text: r.document}
	if s.space(); s.pos == len(r.document) {
		return "want an object such as " + like + ", got an empty document", 0
	}
	if problem == "" {
		if problem, at = checkSyntax(r.document); problem != "" && kind == documentStruct {
			problem = "is " + problem
		}
	}
	switch {
	case problem == "" || kind < documentBinary:
		return problem, at
	case kind == documentBinary:
		problem = "is something else"
	}
	return "want a google.protobuf.StringValue with JSON, or a google.protobuf.Struct, got a message that " + problem, 0
}

var (
	configFields = []field{
		{"namespace", optional}, {"sync_rate", optional}, {"backend", optional}, {"on_backend_failure", optional}, {"capacity", optional},
		{"rules", required}, {"response", optional}, {"headers", optional}, {"x_ratelimit_reset", optional},
		{"header_names", optional}, {"retry_after_jitter", optional}, {"prices", optional}, {"trust_marks", optional},
		{"usage_path", optional},
		{"replicas", optional}, {"access_log", optional},
	}
	backendFields = []field{{"cluster", optional}, {"authority", optional}, {"token", optional}, {"key_secret", optional}, {"timeout", optional}}
)

// Names of values, in the order of their constants. Those of a fields.Set are in the order of its
// bits.
var (
	headerSets = []string{"ratelimit", "x-ratelimit", "retry-after", "tokens"}
	resetUnits = []string{"seconds", "epoch", "milliseconds"}
)

func readConfig(v *value) *Config {
	c := &Config{Namespace: "default", Capacity: defaultCapacity}
	general, answer := Rule{Headers: fields.All | fields.Tokens}, defaultResponse()
	var rate, backend, cluster, rules, replicas *value
	v.object(like, configFields, func(name string, v *value) {
		switch name {
		case "namespace":
			c.Namespace = v.bytes("a string of 1 to 64 of A-Za-z0-9._-", wire.MaxNamespace, wire.IsNamespaceByte)
		case "sync_rate":
			rate = v
			general.SyncRate, general.Share = readSyncRate(v)
		case "access_log":
			c.AccessLog = v.boolean()
		case "replicas":
			replicas = v
			c.Replicas = v.report.shares.readReplicas(v)
			v.report.shares.replicas = c.Replicas
		case "backend":
			backend = v
			cluster = readBackend(v, &c.Backend)
		case "on_backend_failure":
			c.OnBackendFailure = failure.Mode(max(0, v.choice(failure.Names[:])))
		case "capacity":
			c.Capacity = int(v.integer(1, maxCapacity))
		case "rules":
			rules = v // read last, because other fields give their defaults
		case "response":
			answer.read(v)
		case "headers":
			general.Headers = readHeaderSet(v)
		case "header_names":
			c.HeaderNames = readHeaderNames(v)
		case "prices":
			c.Prices = readPrices(v)
		case "trust_marks":
			c.TrustMarks = v.boolean()
		case "usage_path":
			const want = `a path such as "/.weir/usage", of up to 256 visible ASCII characters without ? and #`
			if c.UsagePath = v.bytes(want, maxUsagePath, isPathByte); c.UsagePath != "" && c.UsagePath[0] != '/' {
				v.wrong(want)
			}
		case "retry_after_jitter":
			c.RetryAfterJitter = readShare(v, 999)
		case "x_ratelimit_reset":
			c.ResetUnit = fields.ResetUnit(max(0, v.choice(resetUnits)))
		}
	})
	switch {
	case rate.given():
	case backend.given():
		general.SyncRate = Second
	default:
		general.SyncRate = -Second
	}
	general.Response = answer.complete()
	if rules != nil {
		c.Rules = readRules(rules, &general, answer, c.Prices)
	}
	switch shared := slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Share }); {
	case shared && !replicas.given():
		v.missing("replicas").fail(`missing, want how many proxies there are since sync_rate is "share"`)
	case !shared && replicas.given():
		replicas.fail(`want none without a rule of sync_rate "share", because no other limits are divided`)
	}
	switch synced := c.synchronises(); {
	case v.kind != kindObject || backend.given() && backend.kind != kindObject:
	case !synced:
		c.Backend = Backend{}
	case !cluster.given():
		if !backend.given() {
			backend = v.missing("backend")
		}
		backend.missing("cluster").fail("missing, want the name of an Envoy cluster since sync_rate is not below 0")
	}
	checkTake(rules, c.Rules)
	return c
}

// synchronises reports whether any rule needs the backend.
func (c *Config) synchronises() bool {
	return slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.SyncRate >= 0 })
}

// checkTake reports rules that the backend can't decide with a single question. Where the backend
// decides every request, the proxy asks for all limits of all matching rules together, which may be
// all rules. The backend would refuse too large a question each time, and each proxy would decide
// alone. At intervals, a question is about a single rule, which always fits.
func checkTake(v *value, rules []Rule) {
	limits, answer := 0, wire.GrantSize
	for i := range rules {
		if rules[i].SyncRate != 0 {
			continue
		}
		parts := 1
		if rules[i].Classes != nil {
			parts = partsOfClass
		}
		limits += parts * len(rules[i].Limits)
		widest := rules[i].Widest()
		for j := range widest {
			answer += parts * wire.RoomSize(&widest[j])
		}
	}
	const all = " where sync_rate is 0, because a request may match all rules, got "
	switch {
	case limits > wire.MaxItems:
		v.fail("want at most " + strconv.Itoa(wire.MaxItems) + " limits of all rules together" + all + strconv.Itoa(limits))
	case answer > wire.MaxAnswer:
		v.fail("want fewer or smaller logs and sub-buckets: the backend's answer has at most " + strconv.Itoa(wire.MaxAnswer) +
			" bytes" + all + "up to " + strconv.Itoa(answer))
	}
}

// readSyncRate returns a negative rate, and whether limits are divided. After an error the rate is
// negative, too, because that requires no other field.
func readSyncRate(v *value) (rate Duration, share bool) {
	if v.kind == kindString && v.text == "share" {
		return -Second, true
	}
	if v.kind == kindNumber {
		d := parseDecimal(v.raw)
		millis, whole := d.scaled(3)
		switch {
		case d.negative && d.digits != "":
			return -Second, false
		case whole && millis == 0:
			return 0, false
		case whole && millis <= maxSyncRate.Milliseconds():
			return Duration(millis) * Millisecond, false
		}
	}
	v.wrong(`"share" or a number of seconds: below 0, 0, or from 0.001 to ` +
		strconv.FormatInt(int64(maxSyncRate/Second), 10) + " in whole milliseconds")
	return -Second, false
}

// readBackend reads the backend, and returns the value of cluster, which only some configurations
// require.
func readBackend(v *value, b *Backend) (cluster *value) {
	b.Timeout = defaultTimeout
	v.object(`{"cluster": "weir"}`, backendFields, func(name string, v *value) {
		switch name {
		case "cluster":
			cluster = v
			const want = "the name of an Envoy cluster, 1 to 512 visible ASCII characters"
			b.Cluster = v.bytes(want, maxClusterName, isVisible)
		case "authority":
			const want = "a host, with a port or without, of 1 to 512 visible ASCII characters"
			b.Authority = v.bytes(want, maxClusterName, isVisible)
		case "token":
			v.secret = true
			b.Token = v.bytes("a string of 1 to 8192 visible ASCII characters", maxTokenBytes, isVisible)
		case "key_secret":
			v.secret = true
			const want = "a string of 16 to 8192 visible ASCII characters"
			if b.KeySecret = v.bytes(want, maxTokenBytes, isVisible); b.KeySecret != "" && len(b.KeySecret) < MinKeySecret {
				v.wrong(want)
			}
		case "timeout":
			b.Timeout = v.duration(Millisecond, maxTimeout)
		}
	})
	if b.Authority == "" {
		// Names of Istio's, such as outbound|9180||weir.default.svc.cluster.local, are not an
		// authority that a server accepts.
		b.Authority = b.Cluster[strings.LastIndexByte(b.Cluster, '|')+1:]
	}
	if b.Authority == "" {
		b.Authority = b.Cluster
	}
	return cluster
}

func readHeaderSet(v *value) (set fields.Set) {
	v.array("names of header sets", 0, len(headerSets), func(v *value) {
		i := v.choice(headerSets)
		switch {
		case i < 0:
		case set&(1<<i) != 0:
			v.givenTwice()
		default:
			set |= 1 << i
		}
	})
	return set
}
