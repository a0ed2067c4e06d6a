package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/config"
)

// hinted returns a problem with the probable meaning of a wrong value or unknown field, if there is one.
// The plugin itself suggests fields of similar spelling; hints are for fields with other names. A field that
// was probably meant stands for the list of all.
func hinted(problem string, e config.Error, text []byte) string {
	if e.Path == "" || e.At >= len(text) || text[e.At] != '"' {
		return problem
	}
	var got string
	if err := json.NewDecoder(bytes.NewReader(text[e.At:])).Decode(&got); err != nil {
		return problem
	}
	var meant string
	if known, ok := strings.CutPrefix(e.Problem, "unknown field, want "); ok {
		if meant = meantField(got, strings.FieldsFunc(known, func(r rune) bool { return r == ' ' || r == ',' })); meant != "" {
			problem = "unknown field"
		}
		if meant == "mode" && strings.Contains(letters(got), "shadow") {
			meant = `mode": "shadow`
		}
	} else {
		meant = meantValue(e.Path[strings.LastIndexByte(e.Path, '.')+1:], got)
	}
	if meant == "" || meant == got {
		return problem
	}
	return problem + `, did you mean "` + meant + `"?`
}

// syntaxHint says what is probably to be changed at a mistake of JSON, or "". at is its offset.
func syntaxHint(text []byte, at int) string {
	before, rest := bytes.TrimRight(text[:at], " \t\r\n"), text[at:]
	last := byte(0)
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	switch {
	case len(rest) == 0:
		return ": is a closing bracket missing?"
	case last == ',' && (rest[0] == ']' || rest[0] == '}'):
		return ": take out the comma before it"
	case rest[0] == '#', bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")):
		return ": JSON has no comments"
	case rest[0] == '\'' || last == '\'':
		return ": JSON has double quotes"
	case rest[0] == '_' && '0' <= last && last <= '9':
		return ": write numbers without separators"
	case rest[0] == '"' && strings.IndexByte(`"]}el`, last) >= 0 || (rest[0] == '{' || rest[0] == '[') && (last == '}' || last == ']'):
		return ": is a comma missing before it?"
	}
	return ""
}

// meantField returns the known field that another limiter calls by this name, or "".
func meantField(name string, known []string) string {
	for _, field := range known {
		if slices.Contains(otherNames[field], letters(name)) {
			return field
		}
	}
	return ""
}

// otherNames are other limiters' names of a field, as letters.
var otherNames = map[string][]string{
	"algorithm":          {"strategy", "policy", "type", "kind", "limittype"},
	"backend":            {"redis", "ratelimitservice", "cluster", "server"},
	"body":               {"message", "responsebody"},
	"burst":              {"capacity", "bucketsize", "maxtokens", "size"},
	"client_ip":          {"ip", "remoteaddress", "remoteip", "remoteaddr", "sourceip", "ipaddress"},
	"cluster":            {"url", "address", "host", "clustername", "upstream"},
	"cost":               {"weight", "hitsaddend"},
	"in_cidr":            {"cidr", "cidrs", "ranges", "networks"},
	"jwt_claim":          {"claim", "jwt"},
	"key":                {"by", "identifier", "groupby", "keyby", "descriptors", "entries", "limitby", "perkey", "scope"},
	"limit":              {"requests", "requestsperunit", "max", "rate", "quota", "count", "hits", "tokensperfill", "maxrequests"},
	"limits":             {"rates", "quotas"},
	"match":              {"methods", "path", "paths", "matches", "clientselectors", "when"},
	"mode":               {"dryrun", "enabled", "shadow", "enforce", "shadowmode"},
	"name":               {"id", "rule"},
	"namespace":          {"domain"},
	"on_backend_failure": {"failopen", "failuremodedeny", "failclosed", "faulttolerant"},
	"path":               {"url", "uri"},
	"query":              {"parameter", "param"},
	"regex":              {"matches", "contains", "saferegex", "pattern"},
	"rules":              {"descriptors", "policies"},
	"status":             {"code", "rejectedcode", "rejectcode"},
	"sync_rate":          {"interval", "syncinterval", "period"},
	"token":              {"secret", "auth", "apikey", "password"},
	"window":             {"period", "interval", "per", "unit", "duration", "fillinterval", "timewindow", "seconds"},
}

func meantValue(field, value string) string {
	switch field, _, _ = strings.Cut(field, "["); field {
	case "window", "precision", "timeout":
		return duration(value)
	case "methods":
		return strings.ToUpper(value)
	}
	return meanings[field][letters(value)]
}

// letters returns a word without case and separators, so that sliding-window, slidingWindow and
// Sliding Window are equal.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(text))
}

// meanings are, for each field, other names of its values. The first word of a line is Weir's name.
var meanings = words(map[string]string{
	"algorithm": `sliding_window sliding rolling rolling_window sliding_window_counter
		fixed_window fixed window fixed_window_counter
		sliding_log log sliding_window_log
		token_bucket bucket token leaky_bucket gcra`,
	"start":              "clock aligned epoch\n first_hit first first_request on_first_hit",
	"on_backend_failure": "local local_only fallback\n allow open fail_open\n deny closed fail_closed reject",
	"headers":            "ratelimit rate_limit draft\n x-ratelimit x_rate_limit\n retry-after\n tokens",
	"x_ratelimit_reset":  "seconds s sec second delta delta_seconds\n epoch unix timestamp\n milliseconds ms millis",
	"mode":               "enforce enforced on enforcing\n shadow dry_run dryrun log_only report audit shadow_mode",
	"key":                "client_ip ip remote_ip remote_addr remote_address source_ip source_address ip_address\n method http_method\n path url uri\n host authority hostname",
})

// words parses lines. The first word of a line is the meaning of the others.
func words(fields map[string]string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for field, lines := range fields {
		all[field] = map[string]string{}
		for line := range strings.Lines(lines) {
			words := strings.Fields(line)
			for _, word := range words {
				all[field][letters(word)] = words[0]
			}
		}
	}
	return all
}

var (
	part  = regexp.MustCompile(`([0-9]+)?\s*(?:per\s+|/)?([a-z]+)[\s,]*`)
	units = words(map[string]string{"": `ms msec msecs milli millis millisecond milliseconds
		s sec secs second seconds
		m min mins minute minutes
		h hr hrs hour hours hourly
		d day days daily`})[""]
)

// inMilliseconds warns of a window in seconds, as numbers are, that would be as usual in milliseconds; "" for
// others.
func inMilliseconds(window string) string {
	const day = 86_400
	n, err := strconv.ParseInt(window, 10, 64)
	if err != nil || n < 1000 || n%1000 != 0 || day%(n/1000) != 0 {
		return ""
	}
	return fmt.Sprintf(`%d seconds are %v; if milliseconds are meant, write "%v"`, n, config.Duration(n)*config.Second, config.Duration(n)*config.Millisecond)
}

// duration converts a duration in another form, such as "1 minute", or returns "".
func duration(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	if text != "" && strings.Trim(text, "0123456789") == "" {
		return text + "s"
	}
	var meant strings.Builder
	end := 0
	for _, m := range part.FindAllStringSubmatchIndex(text, -1) {
		unit := units[text[m[4]:m[5]]]
		if m[0] != end || unit == "" {
			return ""
		}
		end = m[1]
		if m[2] < 0 {
			meant.WriteString("1")
		} else {
			meant.WriteString(text[m[2]:m[3]])
		}
		meant.WriteString(unit)
	}
	if end != len(text) {
		return ""
	}
	return meant.String()
}
