package config

import (
	"cmp"
	"strconv"
	"strings"
)

// Bounds that the configuration reference leaves open.
const (
	maxDocument     = 1 << 20
	maxCapacity     = 1 << 24
	defaultCapacity = 1 << 16
	maxClusterName  = 512
	maxTokenBytes   = 8192
	maxTimeout      = Minute
	defaultTimeout  = 200 * Millisecond
	maxSyncRate     = day
)

// Parse reads and checks a configuration: a JSON document of at most 1 MiB. Its error, if any, is of type [Errors] and
// has every mistake; for a document that is no JSON at all, that one. The caller may reuse the document's bytes.
func Parse(document []byte) (*Config, error) {
	const like = `{"rules": [{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}]}`
	text := string(document)
	switch {
	case len(text) > maxDocument:
		return nil, Errors{{Problem: "want at most " + strconv.Itoa(maxDocument) + " bytes, got " + strconv.Itoa(len(text))}}
	case strings.Trim(text, " \t\r\n") == "":
		return nil, Errors{{Problem: "want an object such as " + like + ", got an empty document"}}
	}
	if problem := checkSyntax(text); problem != "" {
		return nil, Errors{{Problem: problem}}
	}
	var r report
	root := value{report: &r, json: parse(text)}
	c := readConfig(root, like)
	if errs := r.errors(); len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

func readConfig(v value, like string) *Config {
	c := &Config{
		Namespace: "default",
		Capacity:  defaultCapacity,
		Response:  defaultResponse(),
		Headers:   HeaderRateLimit | HeaderXRateLimit | HeaderRetryAfter,
	}
	var rate, backend, cluster value
	v.object(like,
		field{"namespace", optional, func(v value) {
			allowed := func(c byte) bool { return isAlphanumeric(c) || strings.IndexByte("._-", c) >= 0 }
			c.Namespace = v.text("a string of 1 to 64 of A-Za-z0-9._-", made(1, 64, allowed))
		}},
		field{"sync_rate", optional, func(v value) {
			rate = v
			c.SyncRate = readSyncRate(v)
		}},
		field{"backend", optional, func(v value) {
			backend = v
			c.Backend, cluster = readBackend(v)
		}},
		field{"on_backend_failure", optional, func(v value) {
			// In the order of Failure.
			c.OnBackendFailure = Failure(max(0, v.choice("local", "allow", "deny")))
		}},
		field{"capacity", optional, func(v value) {
			n := v.integer(1, maxCapacity)
			c.Capacity = int(n)
		}},
		field{"rules", required, func(v value) { c.Rules = readRules(v) }},
		field{"response", optional, func(v value) { c.Response = readResponse(v) }},
		field{"headers", optional, func(v value) { c.Headers = readHeaderSet(v) }},
		field{"x_ratelimit_reset", optional, func(v value) {
			// In the order of ResetUnit.
			if i := v.choice("seconds", "epoch", "milliseconds"); i > 0 {
				c.ResetUnit = ResetUnit(i)
			}
		}},
	)
	switch {
	case rate.given():
	case backend.given():
		c.SyncRate = Second
	default:
		c.SyncRate = -Second
	}
	switch {
	case v.json.kind != kindObject || backend.given() && backend.json.kind != kindObject:
	case c.SyncRate < 0:
		c.Backend = Backend{}
	case !cluster.given():
		if !backend.given() {
			backend = v.missing("backend")
		}
		backend.missing("cluster").fail("missing, want the name of an Envoy cluster since sync_rate is not below 0")
	}
	return c
}

// readSyncRate returns a negative rate for one that is wrong: it asks for nothing else.
func readSyncRate(v value) Duration {
	if v.json.kind == kindNumber {
		d := parseDecimal(v.json.raw)
		millis, whole := d.scaled(3)
		switch {
		case d.negative && d.digits != "":
			return -Second
		case whole && millis == 0:
			return 0
		case whole && millis <= maxSyncRate.Milliseconds():
			return Duration(millis) * Millisecond
		}
	}
	v.wrong("a number of seconds: below 0, 0, or from 0.001 to " +
		strconv.FormatInt(int64(maxSyncRate/Second), 10) + " in whole milliseconds")
	return -Second
}

// readBackend returns the value of cluster too, which only some configurations need.
func readBackend(v value) (b Backend, cluster value) {
	b.Timeout = defaultTimeout
	v.object(`{"cluster": "weir"}`,
		field{"cluster", optional, func(v value) {
			cluster = v
			const want = "the name of an Envoy cluster, 1 to 512 visible ASCII characters"
			b.Cluster = v.text(want, made(1, maxClusterName, isVisible))
		}},
		field{"authority", optional, func(v value) {
			const want = "a host, with a port or without, of 1 to 512 visible ASCII characters"
			b.Authority = v.text(want, made(1, maxClusterName, isVisible))
		}},
		field{"token", optional, func(v value) {
			v.secret = true
			b.Token = v.text("a string of 1 to 8192 visible ASCII characters", made(1, maxTokenBytes, isVisible))
		}},
		field{"timeout", optional, func(v value) { b.Timeout = v.duration(Millisecond, maxTimeout) }},
	)
	if b.Authority == "" {
		// Istio's names, such as outbound|9180||weir.default.svc.cluster.local, are no authority that a server accepts.
		b.Authority = cmp.Or(b.Cluster[strings.LastIndexByte(b.Cluster, '|')+1:], b.Cluster)
	}
	return b, cluster
}

func readHeaderSet(v value) (set HeaderSet) {
	v.array("names of header sets", 0, 3, func(v value) {
		// In the order of HeaderSet's bits.
		i := v.choice("ratelimit", "x-ratelimit", "retry-after")
		switch {
		case i < 0:
		case set&(1<<i) != 0:
			v.fail("given twice")
		default:
			set |= 1 << i
		}
	})
	return set
}
