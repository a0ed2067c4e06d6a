package convert

import (
	"regexp"
	"strings"
)

// part is a variable in a text, or the text between two variables.
type part struct {
	variable bool
	text     string
}

var aVariable = regexp.MustCompile(`\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))`)

// template splits a text into its variables and the texts between them.
func template(text string) (parts []part) {
	for text != "" {
		found := aVariable.FindStringSubmatchIndex(text)
		if found == nil {
			return append(parts, part{false, text})
		}
		if found[0] > 0 {
			parts = append(parts, part{false, text[:found[0]]})
		}
		name := strings.Trim(text[found[0]+1:found[1]], "{}")
		parts = append(parts, part{true, name})
		text = text[found[1]:]
	}
	return parts
}

// selected is the selector for a variable of nginx.
type selected struct {
	selector any
	// always says that every request has the variable. Otherwise, only requests whose header
	// fulfils is have it.
	always bool
	header string
	is     text
}

// everywhere has the selectors of variables that every request has.
var everywhere = map[string]any{
	"remote_addr": client(), "binary_remote_addr": client(), "realip_remote_addr": client(), "proxy_protocol_addr": client(),
	"host": "host", "server_name": "host", "uri": "path", "document_uri": "path", "request_method": "method",
	"request_uri": one("header", ":path"), "scheme": one("header", ":scheme"), "http_host": one("header", ":authority"),
}

// variable returns the selector for a variable of nginx or APISIX.
func variable(name string) (s selected, ok bool) {
	written := name
	name = strings.ToLower(name)
	if selector, there := everywhere[name]; there {
		return selected{selector: selector, always: true}, true
	}
	if of, found := strings.CutPrefix(name, "http_"); found && of != "" {
		header := strings.ReplaceAll(of, "_", "-")
		return selected{one("header", header), false, header, text{regex, ".+"}}, true
	}
	// nginx finds parameters and cookies in any case, rules only as they are written.
	if _, of, _ := strings.Cut(written, "_"); strings.HasPrefix(name, "arg_") && of != "" {
		return selected{one("query", of), false, ":path", text{regex, `[^?]*\?(?:.*&)?` + regexp.QuoteMeta(of) + "=[^&]+.*"}}, true
	}
	if _, of, _ := strings.Cut(written, "_"); strings.HasPrefix(name, "cookie_") && of != "" {
		return selected{one("cookie", of), false, "cookie", text{regex, "(?:.*; *)?" + regexp.QuoteMeta(of) + "=[^;]+.*"}}, true
	}
	return selected{}, false
}

// tellForwarded tells of a header that Envoy changes.
func (c *converter) tellForwarded(at place, variable string) {
	if strings.EqualFold(variable, "http_x_forwarded_for") {
		c.lose(at, "x-forwarded-for: Envoy adds an address to it before a rule sees it, unless use_remote_address is off")
	}
}

// keyOf makes selectors from a text with variables. has are the variables that requests may lack.
// always reports whether the key has a part that no request lacks.
func (c *converter) keyOf(at place, parts []part) (key []any, has []selected, always, ok bool) {
	for _, p := range parts {
		if !p.variable {
			continue // plain text is the same for all requests
		}
		s, known := variable(p.text)
		if !known {
			c.lose(at, "Weir has no selector for $%s", p.text)
			return nil, nil, false, false
		}
		c.tellForwarded(at, p.text)
		key = append(key, s.selector)
		if s.always {
			always = true
		} else {
			has = append(has, s)
		}
	}
	if len(key) == 0 {
		always = true // a key of plain text only
	}
	return key, has, always, true
}
