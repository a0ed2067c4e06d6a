package accesslog

import (
	"net/url"
	"strings"
)

const cloudFront = "cloudfront"

// cloudFrontColumns are the columns of files that name none.
// https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html
var cloudFrontColumns = strings.Fields("date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) " +
	"cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for")

// table reads lines of CloudFront: cells between tabs, in the order that a line #Fields tells.
type table struct {
	options *Options
	clock   clock
	at      map[string]int // by the column's name, in lower case
	headers map[int]Part
}

func newTable(o *Options, columns []string) *table {
	t := &table{options: o, at: map[string]int{}, headers: map[int]Part{}}
	for i, name := range columns {
		name = strings.ToLower(name)
		t.at[name] = i
		for prefix, kind := range map[string]PartKind{"cs(": Header, "sc(": ResponseHeader} {
			if header, found := strings.CutPrefix(name, prefix); found && name != "cs(host)" {
				t.headers[i] = Part{kind, strings.TrimSuffix(header, ")")}
			}
		}
	}
	return t
}

func (t *table) parse(line string, r *Request) (err error) {
	cells := strings.Split(line, "\t")
	cell := func(name string) string {
		at, found := t.at[name]
		if !found || at >= len(cells) || cells[at] == "-" {
			return ""
		}
		return cells[at]
	}
	if len(cells) < 2 {
		return errFewTokens
	}
	if r.Time, err = t.clock.read(cell("date") + " " + cell("time")); err != nil {
		return err
	}
	r.Time -= r.lasted(cell("time-taken"), 1e9)
	method, path := cell("cs-method"), cell("cs-uri-stem")
	if method == "" || path == "" {
		return errNoRequest
	}
	if query := cell("cs-uri-query"); query != "" {
		path += "?" + query
	}
	r.set(Method, method)
	r.set(Path, path)
	r.set(Authority, cell("x-host-header"))
	r.set(Authority, cell("cs(host)")) // the distribution's own name
	r.set(Status, cell("sc-status"))
	for at, part := range t.headers {
		if at < len(cells) {
			r.set(part, unescapeURL(cells[at]))
		}
	}
	chain := unescapeURL(cell("x-forwarded-for"))
	r.set(Forwarded, chain)
	if client := t.options.client(cell("c-ip"), chain); client != "" {
		r.set(Source, client)
	}
	t.options.mapColumns(r, len(cells), func(i int) string { return cells[i] })
	return nil
}

// unescapeURL undoes the escapes of a header.
func unescapeURL(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
