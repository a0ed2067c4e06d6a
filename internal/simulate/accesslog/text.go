package accesslog

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

var (
	// errNoRequest marks a line about a connection without a request, such as the line that nginx
	// writes when TLS arrives where it expects plain HTTP.
	errNoRequest  = errors.New("no request")
	errUnclosed   = errors.New("a quote or bracket is not closed")
	errManyTokens = errors.New("too many fields")
	errFewTokens  = errors.New("too few fields")
	errShape      = errors.New("fields are not those of the format")
)

const maxTokens = 64

// token is a field of a line of text, without its quotes or brackets.
type token struct {
	text string
	// open is the first character of the field if it is a quote or a bracket, or 0.
	open byte
}

// split splits a line at spaces outside of quotes and brackets. With escapes, a quote after a
// backslash does not end the field.
func split(line string, escapes bool, dst []token) ([]token, error) {
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return dst, nil
		}
		if len(dst) == maxTokens {
			return dst, errManyTokens
		}
		var end, skip int
		t := token{open: line[0]}
		if t.open == '[' && strings.HasPrefix(line[strings.IndexByte(line, ']')+1:], ":") {
			t.open = 0 // an address of IPv6 with its port
		}
		switch t.open {
		case '[':
			line, skip = line[1:], 1
			end = strings.IndexByte(line, ']')
		case '"':
			line, skip = line[1:], 1
			end = closing(line, escapes)
		default:
			t.open = 0
			if end = strings.IndexByte(line, ' '); end < 0 {
				end = len(line)
			}
		}
		if end < 0 {
			return dst, errUnclosed
		}
		t.text = line[:end]
		line = line[end+skip:]
		dst = append(dst, t)
	}
}

// closing returns the index of the quote that ends a field: a space follows it, or nothing.
func closing(text string, escapes bool) int {
	for i := 0; i < len(text); i++ {
		switch {
		case escapes && text[i] == '\\':
			i++
		case text[i] == '"' && (i+1 == len(text) || text[i+1] == ' '):
			return i
		}
	}
	return -1
}

// unescape undoes the escapes that nginx and Apache write for quotes, backslashes and control
// characters.
func unescape(text string) string {
	at := strings.IndexByte(text, '\\')
	if at < 0 {
		return text
	}
	out := make([]byte, at, len(text))
	copy(out, text)
	for i := at; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			out = append(out, c)
			continue
		}
		i++
		switch c = text[i]; c {
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'x':
			if i+2 < len(text) {
				if n, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
					c, i = byte(n), i+2
				}
			}
		}
		out = append(out, c)
	}
	return string(out)
}

// requestLine reads a line such as GET /path HTTP/1.1.
func (r *Request) requestLine(line string) error {
	method, rest, found := strings.Cut(line, " ")
	last := strings.LastIndexByte(rest, ' ')
	// A method is a token, as a header's name is.
	if !found || last < 0 || len(method) > 64 || !httpguts.ValidHeaderFieldName(method) {
		return errNoRequest
	}
	path, protocol := rest[:last], rest[last+1:]
	if !strings.HasPrefix(protocol, "HTTP/") && protocol != "-" {
		return errNoRequest
	}
	// Envoy's text has dashes for what it could not parse.
	if path == "" || method == "-" || path == "-" && method != "CONNECT" {
		return errNoRequest
	}
	r.set(Method, method)
	if method == "CONNECT" { // it names a host in place of a path, and passes rules
		r.set(Authority, path)
		path = ""
	}
	r.path(path)
	return nil
}

// usualPorts are those that load balancers of AWS write into each URI, and clients into none.
var usualPorts = map[string]string{"http": ":80", "https": ":443"}

// path sets the path, and for an absolute URI the authority too.
func (r *Request) path(path string) {
	if path != "" && path[0] != '/' {
		if scheme, rest, found := strings.Cut(path, "://"); found && usualPorts[scheme] != "" {
			at := strings.IndexAny(rest, "/?")
			if at < 0 {
				at = len(rest)
			}
			r.set(Authority, strings.TrimSuffix(rest[:at], usualPorts[scheme]))
			if path = rest[at:]; path == "" || path[0] != '/' {
				path = "/" + path
			}
		}
	}
	r.set(Path, path)
}

// text reads lines of a text format.
type text struct {
	options *Options
	clock   clock
	tokens  []token
	layout  *layout
}

// layout says which field of a format has which part. Numbers count fields from 0.
type layout struct {
	name    string
	escapes bool
	// shape has a letter for each field: q for a field in quotes, b for a field in brackets, a dot
	// for others. more allows further fields.
	shape         string
	more          bool
	time, request int
	// peer is the address that connected. With trusted, Envoy has made it the client's address.
	// forwarded is X-Forwarded-For. peer and forwarded are -1 if the format does not have them.
	peer      int
	trusted   bool
	forwarded int
	parts     map[int]Part
	// lasts is the duration of the request in milliseconds, or 0 if the format does not have it.
	// ended is the time of its end, or 0.
	lasts, ended int
}

var layouts = []layout{
	// https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage#default-format-string
	{
		name: "envoy", shape: "bq......qqqqq", time: 0, request: 1, peer: -1, forwarded: 8, lasts: 6,
		parts: map[int]Part{2: Status, 9: UserAgent, 10: RequestID, 11: Authority},
	},
	// https://istio.io/latest/docs/tasks/observability/logs/access-log/#default-access-log-format
	{
		name: "istio", shape: "bq....q....qqqqq......", time: 0, request: 1, peer: 19, trusted: true, forwarded: 11, lasts: 9,
		parts: map[int]Part{2: Status, 12: UserAgent, 13: RequestID, 14: Authority},
	},
	// https://nginx.org/en/docs/http/ngx_http_log_module.html, followed by
	// $http_x_forwarded_for as in the example of nginx.conf, or by anything else.
	{
		name: "combined", escapes: true, shape: "...bq..qq", more: true, time: 3, request: 4, peer: 0, forwarded: 9,
		parts: map[int]Part{5: Status, 7: Referer, 8: UserAgent},
	},
	// As Debian's apache2.conf defines it: the server's name and port, and then as combined.
	{
		name: "vhost_combined", escapes: true, shape: "....bq..qq", more: true, time: 4, request: 5, peer: 1, forwarded: 10,
		parts: map[int]Part{0: Authority, 6: Status, 8: Referer, 9: UserAgent},
	},
	// https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html
	{
		name: "alb", escapes: true, shape: "............qq...qqq..", more: true, time: 21, request: 12, peer: 3, forwarded: -1, ended: 1,
		parts: map[int]Part{8: Status, 13: UserAgent},
	},
	// https://en.wikipedia.org/wiki/Common_Log_Format
	{name: "common", escapes: true, shape: "...bq..", time: 3, request: 4, peer: 0, forwarded: -1, parts: map[int]Part{5: Status}},
}

func (p *text) parse(line string, r *Request) (err error) {
	l := p.layout
	if p.tokens, err = split(line, l.escapes, p.tokens[:0]); err != nil {
		return err
	}
	if err := l.check(p.tokens); err != nil {
		return err
	}
	if r.Time, err = p.clock.read(p.tokens[l.time].text); err != nil {
		return err
	}
	if l.escapes {
		for i := range p.tokens {
			p.tokens[i].text = unescape(p.tokens[i].text)
		}
	}
	if err := r.requestLine(p.tokens[l.request].text); err != nil {
		return err
	}
	for i, part := range l.parts {
		value := p.tokens[i].text
		if i == 0 {
			at := strings.LastIndexByte(value, ':')
			if port, err := strconv.ParseUint(value[at+1:], 10, 16); at < 0 || err != nil {
				return errShape // a combined line whose user has a space
			} else if port == 80 || port == 443 { // Apache's %p writes it, and clients write it into no host
				value = value[:at]
			}
		}
		r.set(part, value)
	}
	peer, chain := "", ""
	if l.peer >= 0 {
		peer = p.tokens[l.peer].text
	}
	if at := l.forwarded; at >= 0 && at < len(p.tokens) && p.tokens[at].open == '"' && isForwarded(p.tokens[at].text) {
		chain = p.tokens[at].text
		r.set(Forwarded, chain)
	}
	if !l.trusted {
		peer = p.options.client(peer, chain)
	}
	if peer != "" {
		r.set(Source, peer)
	}
	if l.lasts > 0 {
		r.lasted(p.tokens[l.lasts].text, 1e6)
	}
	if l.ended > 0 {
		ended, err := new(clock).read(p.tokens[l.ended].text)
		if err != nil {
			return err
		}
		r.lasted(strconv.FormatInt(ended-r.Time, 10), 1)
	}
	p.options.mapColumns(r, len(p.tokens), func(i int) string { return p.tokens[i].text })
	return nil
}

func (l *layout) check(tokens []token) error {
	if len(tokens) < len(l.shape) {
		return errFewTokens
	}
	if len(tokens) > len(l.shape) && !l.more {
		return errManyTokens
	}
	for i := range l.shape {
		want := byte(0)
		switch l.shape[i] {
		case 'b':
			want = '['
		case 'q':
			want = '"'
		}
		if tokens[i].open != want {
			return errShape
		}
	}
	return nil
}
