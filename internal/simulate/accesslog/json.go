package accesslog

import (
	"cmp"
	"errors"
	"net"
	"strings"

	"github.com/tidwall/gjson"
)

var (
	errJSON   = errors.New("not one JSON object")
	errNoTime = errors.New("no time")
	errDeep   = errors.New("objects nested too deep")
)

const (
	maxDepth     = 8
	maxFieldName = 256
	// hidden is what Caddy and Traefik write in place of a header that they keep secret. Caddy before 2.7.3 wrote
	// an empty array.
	hidden = "REDACTED"
)

// target is the meaning of a field in a JSON log.
type target struct {
	role role
	part Part
}

type role uint8

const (
	isPart role = iota
	isNothing
	isTime
	isRequestLine
	isPath
	isOriginalPath
	isQuery
	isPeer
	// isClientHost is Traefik's: X-Forwarded-For, or the peer's address without its port if there is none.
	isClientHost
	isClient
	// isMillis is the duration of a request from its time on, in milliseconds, as Envoy writes it.
	// isSeconds is the duration of a request up to its time, in seconds, as nginx writes it.
	// isNanos and isLatency are durations from its time on too: whole nanoseconds, and seconds with
	// an s.
	isMillis
	isSeconds
	isNanos
	isLatency
)

// dialect has the names of a writer, in lower case.
type dialect struct {
	// request is the path of a field that all its requests have, if there is one.
	request  string
	names    map[string]target
	prefixes map[string]PartKind
}

// usual has the names of fields in the encodings of Envoy Gateway and Istio, and other common names.
var usual = &dialect{names: map[string]target{}, prefixes: map[string]PartKind{
	"request_headers.": Header, "request.headers.": Header, "http.request.headers.": Header, "headers.": Header, "http_": Header,
	"response_headers.": ResponseHeader, "response.headers.": ResponseHeader, "http.response.headers.": ResponseHeader,
	"sent_http_": ResponseHeader,
}}

func init() {
	for t, names := range map[target]string{
		{role: isTime}:                       "start_time @timestamp timestamp time time_iso8601 time_local msec ts datetime",
		{role: isRequestLine}:                "request",
		{role: isPath}:                       "path :path uri url request_path url.original",
		{role: isOriginalPath}:               "x-envoy-original-path x-envoy-origin-path x_envoy_original_path request_uri",
		{role: isQuery}:                      "args query_string",
		{role: isPeer}:                       "remote_addr remote_ip client_ip client.ip clientip source.address downstream_direct_remote_address",
		{role: isClient}:                     "downstream_remote_address",
		{part: Method}:                       "method :method request_method verb http.request.method",
		{part: Authority}:                    "authority :authority host http_host url.domain",
		{part: UserAgent}:                    "user_agent user-agent agent http_user_agent user_agent.original",
		{part: Referer}:                      "referer referrer http_referer http.request.referrer",
		{part: RequestID}:                    "request_id x-request-id x_request_id",
		{part: Forwarded}:                    "x_forwarded_for x-forwarded-for http_x_forwarded_for",
		{part: Status}:                       "response_code :status status response http.response.status_code",
		{role: isMillis}:                     "duration",
		{role: isSeconds}:                    "request_time",
		{part: Part{Property, "route_name"}}: "route_name",
		{role: isNothing}: "protocol response_flags response_code_details connection_termination_details " +
			"upstream_transport_failure_reason bytes_received bytes_sent upstream_service_time " +
			"x-envoy-upstream-service-time upstream_host upstream_cluster upstream_local_address downstream_local_address " +
			"requested_server_name body_bytes_sent upstream_response_time",
	} {
		for name := range strings.FieldsSeq(names) {
			usual.names[name] = t
		}
	}
}

// dialects are those that have names besides the usual.
var dialects = map[string]*dialect{
	// https://caddyserver.com/docs/logging
	"caddy": {
		request: "request.uri",
		names: map[string]target{
			"request.uri": {role: isPath}, "request.method": {part: Method}, "request.host": {part: Authority}, "status": {part: Status},
			"request.remote_ip": {role: isPeer}, "request.client_ip": {role: isClient}, "duration": {role: isSeconds},
		},
		prefixes: map[string]PartKind{"request.headers.": Header, "resp_headers.": ResponseHeader},
	},
	// https://doc.traefik.io/traefik/reference/install-configuration/observability/logs-and-accesslogs/
	"traefik": {
		request: "RequestPath",
		names: map[string]target{
			"requestpath": {role: isPath}, "requestmethod": {part: Method}, "requestaddr": {part: Authority}, "downstreamstatus": {part: Status},
			"clientaddr": {role: isPeer}, "clienthost": {role: isClientHost}, "duration": {role: isNanos}, "startutc": {role: isTime}, "time": {role: isNothing}, "startlocal": {role: isNothing},
		},
		prefixes: map[string]PartKind{"request_": Header, "downstream_": ResponseHeader},
	},
	// https://cloud.google.com/logging/docs/reference/v2/rest/v2/LogEntry#HttpRequest
	"gcp": {
		request: "httpRequest.requestUrl",
		names: map[string]target{
			"httprequest.requesturl": {role: isPath}, "httprequest.requestmethod": {part: Method}, "httprequest.status": {part: Status},
			"httprequest.useragent": {part: UserAgent}, "httprequest.referer": {part: Referer}, "httprequest.remoteip": {role: isPeer},
			"httprequest.latency": {role: isLatency}, "timestamp": {role: isTime}, "receivetimestamp": {role: isNothing},
		},
	},
}

// target returns the meaning of a field. A field of an unknown name is taken for the header of that
// name.
func (d *dialect) target(name string) target {
	name = strings.ToLower(name)
	for _, d := range []*dialect{d, usual} {
		if t, found := d.names[name]; found {
			return t
		}
		for prefix, kind := range d.prefixes {
			if rest, found := strings.CutPrefix(name, prefix); found {
				return target{part: Part{kind, strings.ReplaceAll(rest, "_", "-")}}
			}
		}
	}
	return target{part: Part{Header, strings.ReplaceAll(name, "_", "-")}}
}

// object reads lines of JSON.
type object struct {
	options *Options
	dialect *dialect
	clock   clock
	targets map[string]target
}

func (p *object) target(name string) target {
	t, found := p.targets[name]
	if found {
		return t
	}
	if t, found = p.options.names[name]; !found {
		t = p.dialect.target(name)
	}
	if len(name) <= maxFieldName && len(p.targets) < 4096 {
		p.targets[strings.Clone(name)] = t
	}
	return t
}

// found holds the texts of a line that are not parts by themselves.
type found [isLatency + 1]struct {
	text string
	// given says that the user has mapped the field.
	given bool
}

// set sets a role. The field that the user has mapped counts, or else the first field with the
// role.
func (f *found) set(r role, text string, given bool) {
	if v := &f[r]; text != "" && (v.text == "" || given && !v.given) {
		v.text, v.given = text, given
	}
}

func (p *object) parse(line string, r *Request) error {
	if line == "" || line[0] != '{' || !gjson.Valid(line) {
		return errJSON
	}
	if p.dialect.request != "" && !gjson.Get(line, p.dialect.request).Exists() {
		return errNoRequest
	}
	var f found
	err := p.members(gjson.Parse(line), "", r, &f, 0)
	if err != nil {
		return err
	}
	if f[isTime].text == "" {
		return errNoTime
	}
	if r.Time, err = p.clock.read(f[isTime].text); err != nil {
		return err
	}
	r.Time -= r.lasted(f[isSeconds].text, 1e9)
	r.lasted(f[isMillis].text, 1e6)
	r.lasted(f[isNanos].text, 1)
	r.lasted(strings.TrimSuffix(f[isLatency].text, "s"), 1e9)
	path, original := f[isPath].text, f[isOriginalPath].text
	requestLine := f[isRequestLine].text
	if strings.HasPrefix(requestLine, "/") && !strings.Contains(requestLine, " ") { // Logstash's COMBINEDAPACHELOG
		path, requestLine = cmp.Or(path, requestLine), ""
	}
	if query := strings.TrimPrefix(f[isQuery].text, "?"); path != "" && query != "" && !strings.Contains(path, "?") {
		path += "?" + query
	}
	if f[isPath].given {
		r.path(path)
	} else if original != "" {
		r.path(original)
	}
	// nginx's uri is what try_files and rewrites have made of the request.
	if requestLine != "" {
		if err := r.requestLine(requestLine); err != nil && path == "" && original == "" {
			return err
		}
	}
	if path != "" {
		r.path(path)
	}
	method, target := r.Find(Method.Kind, Method.Name), r.Find(Path.Kind, Path.Name)
	if method != nil && method.Value == "CONNECT" {
		r.set(Path, "")
	} else if target == nil || target.Absent || method != nil && method.Absent {
		return errNoRequest
	}
	if chain := f[isClientHost].text; chain != "" {
		if host, _, err := net.SplitHostPort(f[isPeer].text); err == nil && chain == host {
			chain = ""
		}
		r.set(Forwarded, chain)
	}
	chain := ""
	if forwarded := r.Find(Forwarded.Kind, Forwarded.Name); forwarded != nil {
		chain = forwarded.Value
	}
	if client := cmp.Or(f[isClient].text, p.options.client(f[isPeer].text, chain)); client != "" {
		r.set(Source, client)
	}
	return nil
}

func (p *object) members(o gjson.Result, prefix string, r *Request, f *found, depth int) (err error) {
	if depth == maxDepth {
		return errDeep
	}
	o.ForEach(func(key, value gjson.Result) bool {
		name := key.Str
		if prefix != "" {
			name = prefix + "." + name
		}
		if value.IsObject() {
			err = p.members(value, name, r, f, depth+1)
		} else {
			p.member(name, value, r, f)
		}
		return err == nil
	})
	return err
}

func (p *object) member(name string, value gjson.Result, r *Request, f *found) {
	text := value.Str
	if value.Type != gjson.String && value.Type != gjson.Null {
		text = value.Raw // as it is written: the number may have any length
	}
	t := p.target(name)
	if value.IsArray() {
		if t.role != isPart || t.part.Kind == Property {
			return
		}
		if text = lines(value); len(value.Array()) == 0 {
			return
		}
	}
	if t.role == isPart && text == hidden {
		return
	}
	if text == "-" {
		text = ""
	}
	_, given := p.options.names[name]
	switch {
	case t.part == Status && len(text) > len("200"): // a time, or a text
	case t.role != isPart:
		f.set(t.role, text, given)
	case given:
		r.overwrite(t.part, text)
	default:
		r.set(t.part, text)
	}
}

// lines returns the lines of a header as a single one, as Envoy reads them, or nothing if they are no texts.
func lines(values gjson.Result) string {
	var all []string
	for _, value := range values.Array() {
		if value.Type != gjson.String {
			return ""
		}
		all = append(all, value.Str)
	}
	return strings.Join(all, ",")
}
