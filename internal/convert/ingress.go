package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const annotation = "nginx.ingress.kubernetes.io/"

// harmlessAnnotations are annotations of ingress-nginx that change neither which requests are limited nor
// what a refusal looks like: what they do is done to upstreams, to answers, or to requests that have
// passed their limits, as authentication is.
var harmlessAnnotations = strings.Fields(`
	affinity affinity-* auth-realm auth-secret auth-secret-type auth-type auth-tls-* auth-url auth-method auth-signin auth-signin-redirect-param auth-response-headers
	auth-request-redirect auth-cache-key auth-cache-duration auth-keepalive* auth-proxy-set-headers auth-always-set-cookie enable-global-auth backend-protocol
	canary-* client-body-buffer-size cors-* default-backend denylist-source-range disable-proxy-intercept-errors force-ssl-redirect http2-push-preload
	permanent-redirect-code temporal-redirect-code relative-redirects preserve-trailing-slash proxy-* enable-rewrite-log satisfy service-upstream session-cookie-* ssl-redirect
	ssl-ciphers ssl-prefer-server-ciphers upstream-hash-by* upstream-vhost x-forwarded-prefix load-balance whitelist-source-range allowlist-source-range connection-proxy-header
	custom-headers enable-access-log enable-opentracing opentracing-* enable-opentelemetry opentelemetry-* enable-influxdb influxdb-* mirror-* secure-backends
	limit-rps limit-rpm limit-connections limit-burst-multiplier limit-whitelist limit-allowlist use-regex rewrite-target server-alias canary app-root permanent-redirect
	temporal-redirect enable-cors from-to-www-redirect custom-http-errors`)

// otherClasses are the usual names of the classes that other controllers read.
var otherClasses = strings.Fields(`alb ambassador azure-application-gateway azure/application-gateway cilium contour gce gce-internal haproxy istio
	kong openshift-default skipper tailscale traefik`)

// harmlessSettings are those of the controller's ConfigMap.
var harmlessSettings = strings.Fields(`
	add-headers allow-* annotation-value-word-blocklist annotations-risk-level strict-validate-path-type hide-headers access-log-* http-access-log-path stream-access-log-path
	enable-access-log-for-default-backend error-log-* client-header-* client-body-* disable-access-log disable-ipv6 disable-ipv6-dns disable-proxy-intercept-errors
	enable-underscores-in-headers enable-ocsp ignore-invalid-headers retry-non-idempotent http2-* hsts hsts-* keep-alive keep-alive-requests large-client-header-buffers
	log-format-* enable-multi-accept max-worker-* map-hash-bucket-size nginx-status-* proxy-set-headers server-name-hash-* proxy-headers-hash-* reuse-port server-tokens ssl-*
	proxy-protocol-header-timeout use-gzip use-geoip use-geoip2 geoip2-* enable-brotli brotli-* use-http2 gzip-* worker-* load-balance variables-hash-* upstream-keepalive-*
	proxy-stream-* bind-address compute-full-forwarded-for proxy-add-original-uri-header generate-request-id enable-opentracing opentracing-* zipkin-* jaeger-* datadog-*
	enable-opentelemetry opentelemetry-* otlp-* otel-* proxy-body-size proxy-connect-timeout proxy-read-timeout proxy-send-timeout proxy-buffer* proxy-busy-buffers-size
	proxy-max-temp-file-size proxy-http-version proxy-cookie-* proxy-next-upstream* proxy-redirect-* proxy-request-buffering force-ssl-redirect whitelist-source-range allowlist-source-range
	denylist-source-range skip-access-log-urls lua-shared-dicts http-redirect-code enable-syslog syslog-* no-tls-redirect-locations global-auth-url global-auth-method global-auth-signin*
	global-auth-response-headers global-auth-request-redirect global-auth-cache-* global-auth-always-set-cookie no-auth-locations default-type service-upstream debug-connections
	limit-req-status-code limit-conn-status-code global-rate-limit-memcached-* global-rate-limit-status-code grpc-buffer-size-kb allow-cross-namespace-resources
	enable-aio-write plugins`)

type ingress struct {
	value       value
	name        string
	annotations map[string]value
	limits      []*directive
}

// controller makes of Ingresses what ingress-nginx makes of them: a configuration of nginx.
type controller struct {
	c       *converter
	http    *directive
	servers map[string]*directive
	// catchesAll marks servers whose location / is that for paths without one.
	catchesAll map[*directive]bool
	expression map[*directive]bool // servers whose locations are all regular expressions
	names      map[string]bool     // of zones
}

func said(at place, name string, args ...string) *directive {
	return &directive{at: at, name: name, args: args}
}

// ingresses reads the annotations of ingress-nginx, which count by the client's address. An Ingress
// has a zone for each limit, which all of its paths share.
func (c *converter) ingresses(documents []value) {
	k := &controller{
		c: c, http: &directive{name: "http"}, servers: map[string]*directive{}, catchesAll: map[*directive]bool{}, expression: map[*directive]bool{}, names: map[string]bool{},
	}
	var all []*ingress
	for len(documents) > 0 {
		d := documents[0]
		documents = append(documents[1:], d.get("items").list()...)
		switch kind := d.get("kind").text(); kind {
		case "ConfigMap":
			k.settings(d)
		case "Ingress":
			class := d.get("metadata", "annotations", "kubernetes.io/ingress.class")
			if !class.there() {
				class = d.get("spec", "ingressClassName")
			}
			if slices.Contains(otherClasses, class.text()) {
				if slices.ContainsFunc(d.get("metadata", "annotations").fields(), func(f field) bool { return strings.HasPrefix(f.name, annotation+"limit-") }) {
					class.lose("ingress-nginx reads no Ingresses of the class %s", class.text())
				}
				continue
			}
			all = append(all, c.ingress(d))
		case "VirtualServer", "VirtualServerRoute", "TransportServer", "Policy", "NginxProxy", "ClientSettingsPolicy", "RateLimitPolicy":
			d.get("kind").lose("%s: what F5's controllers for nginx read is not read here", kind)
		}
	}
	if len(all) == 0 {
		return
	}
	// ingress-nginx takes the older ones first, and of the same age the last by name.
	created := func(i *ingress) string { return i.value.get("metadata", "creationTimestamp").text() }
	if !slices.ContainsFunc(all, func(i *ingress) bool { return created(i) == "" }) {
		named := func(i *ingress) string { return i.value.get("metadata", "namespace").text() + "/" + i.name }
		slices.SortStableFunc(all, func(a, b *ingress) int {
			return cmp.Or(strings.Compare(created(a), created(b)), strings.Compare(named(b), named(a)))
		})
	}
	// The server of all other hosts is there always, and its location answers with 404.
	k.http.at = all[0].value.at
	k.serverOf("", said(k.http.at, "location", "/"))
	all = slices.DeleteFunc(all, func(i *ingress) bool { return i.annotations["canary"].truth(false) }) // nginx reads no limits of those
	for _, i := range all {
		k.limits(i)
		k.paths(i)
	}
	for _, s := range k.http.find("server") {
		k.finish(s)
	}
	c.nginxLimits(k.http)
}

// settings reads the ConfigMap of a controller.
func (k *controller) settings(d value) {
	about := strings.Contains(d.get("metadata", "name").text(), "nginx")
	fields := d.get("data").fields()
	own := []string{"limit-*", "*-snippet", "use-forwarded-headers", "use-proxy-protocol", "enable-real-ip", "global-rate-limit-*"}
	about = about || slices.ContainsFunc(fields, func(f field) bool { return fitsAny(f.name, own) })
	for _, f := range fields {
		v := f.value
		if isFile := strings.Contains(v.text(), "limit_req ") || strings.Contains(v.text(), "limit_conn "); isFile && !strings.HasSuffix(f.name, "-snippet") {
			k.c.lose(f.at, "%.60s: files of nginx's in a ConfigMap are not read: give this one by itself", f.name)
			continue
		}
		if !about || strings.HasSuffix(f.name, ".conf") {
			continue
		}
		switch f.name {
		case "limit-req-status-code":
			k.http.block = append(k.http.block, said(f.at, "limit_req_status", v.text()))
		case "limit-conn-status-code":
			k.http.block = append(k.http.block, said(f.at, "limit_conn_status", v.text()))
		case "use-forwarded-headers", "use-proxy-protocol", "enable-real-ip":
			if v.truth(false) {
				v.lose("%s: the client's address is Envoy's source.address: set xff_num_trusted_hops, or the listener filter of the PROXY protocol", f.name)
			}
		case "forwarded-for-header", "proxy-real-ip-cidr": // read with those above alone
		case "limit-rate", "limit-rate-after":
			if v.text() != "0" {
				v.lose("%s: Weir does not limit bytes", f.name)
			}
		case "custom-http-errors":
			k.http.block = append(k.http.block, pages(f.at, v))
		case "enable-modsecurity", "enable-owasp-modsecurity-crs", "modsecurity-snippet":
			if v.text() != "false" && v.text() != "" {
				k.c.lose(f.at, "%s: rules of ModSecurity may refuse requests before they are counted", f.name)
			}
		default:
			if v.text() != "" {
				k.c.toldUnlessHarmless(f.at, f.name, harmlessSettings)
			}
		}
	}
}

const customErrors = "@custom-http-errors"

// pages has an upstream answer in place of some statuses.
func pages(at place, codes value) *directive {
	of := strings.FieldsFunc(codes.text(), func(r rune) bool { return r == ',' || r == ' ' })
	return said(at, "error_page", append(of, "=", customErrors)...)
}

func (c *converter) ingress(d value) *ingress {
	i := &ingress{value: d, name: cmp.Or(d.get("metadata", "name").text(), "ingress"), annotations: map[string]value{}}
	for _, f := range d.get("metadata", "annotations").fields() {
		name, ok := strings.CutPrefix(f.name, annotation)
		switch {
		case ok:
			i.annotations[name] = f.value
			i.told(f, name)
		case strings.HasPrefix(f.name, "nginx.org/") || strings.HasPrefix(f.name, "nginx.com/"):
			c.lose(f.at, "%.80s: what F5's controllers for nginx read is not read here", f.name)
		}
	}
	return i
}

// told tells what an annotation loses.
func (i *ingress) told(f field, name string) {
	c, v := f.value.c, f.value
	switch {
	case v.text() == "" || v.text() == "false" && !strings.HasSuffix(name, "-snippet"):
	case strings.HasPrefix(name, "limit-rate"):
		if v.text() != "0" {
			v.lose("%s: Weir does not limit bytes", name)
		}
	case strings.HasPrefix(name, "global-rate-limit"):
		c.lose(f.at, "%s: this counts for all replicas together, by a key of its own: write a rule with a backend", name)
	case strings.HasSuffix(name, "-snippet"):
		c.lose(f.at, "%s: directives of nginx in a snippet are not read; convert the output of nginx -T in the controller", name)
	case name == "ssl-passthrough":
		c.lose(f.at, "ssl-passthrough: no limit of nginx holds for these hosts")
	default:
		c.toldUnlessHarmless(f.at, name, harmlessAnnotations)
	}
}

// limits makes the zones of an Ingress, and the directives that its locations have.
func (k *controller) limits(i *ingress) {
	key := "$binary_remote_addr"
	name := i.name
	for n := 2; k.names[name]; n++ {
		name = fmt.Sprint(i.name, "-", n)
	}
	k.names[name] = true
	exempt := said(i.value.at, "geo", fmt.Sprint("$exempt_", len(k.names)))
	for _, list := range []string{"limit-whitelist", "limit-allowlist"} {
		v := i.annotations[list]
		for n := range strings.SplitSeq(v.text(), ",") {
			if n = strings.TrimSpace(n); n == "" {
				continue
			}
			if _, ok := parseNetwork(n); !ok {
				v.lose("want networks such as 10.0.0.0/8, got %.80q", v.text())
				continue
			}
			exempt.block = append(exempt.block, said(v.at, n, "1"))
		}
	}
	add := func(d *directive) { k.http.block = append(k.http.block, d) }
	if len(exempt.block) > 0 {
		limited := said(exempt.at, "map", exempt.arg(0), fmt.Sprint("$limited_", len(k.names)))
		limited.block = []*directive{said(exempt.at, "1", ""), said(exempt.at, "default", key)}
		add(exempt)
		add(limited)
		key = limited.arg(1)
	}
	if v := i.annotations["limit-connections"]; v.whole(0) > 0 {
		add(said(v.at, "limit_conn_zone", key, "zone="+name+"-connections:5m"))
		i.limits = append(i.limits, said(v.at, "limit_conn", name+"-connections", fmt.Sprint(v.whole(0))))
	}
	const multiplier = 5 // the default of ingress-nginx
	times := i.annotations["limit-burst-multiplier"].whole(multiplier)
	if times < 1 {
		i.annotations["limit-burst-multiplier"].lose("limit-burst-multiplier: nginx refuses a configuration with a burst below 1")
	}
	for _, unit := range []string{"s", "m"} {
		v := i.annotations["limit-rp"+unit]
		if rate := v.whole(0); rate > 0 {
			zone := name + "-rp" + unit
			add(said(v.at, "limit_req_zone", key, "zone="+zone+":5m", fmt.Sprint("rate=", rate, "r/", unit)))
			limit := said(v.at, "limit_req", "zone="+zone, "nodelay")
			if times > 0 {
				limit.args = append(limit.args, fmt.Sprint("burst=", uint64(rate)*uint64(times)))
			}
			i.limits = append(i.limits, limit)
		}
	}
	for name, of := range map[string]string{"app-root": "requests for /", "enable-cors": "preflight requests"} {
		if v := i.annotations[name]; len(i.limits) > 0 && v.text() != "" && v.text() != "false" {
			v.lose("%s: nginx answers %s before it limits; the rules count them, too", name, of)
		}
	}
	if v := i.annotations["custom-http-errors"]; v.text() != "" {
		i.limits = append(i.limits, pages(v.at, v))
	}
}

// serverOf returns the server of a host. If there is none, it gets one, with a location for paths that have
// none.
func (k *controller) serverOf(host string, root *directive) *directive {
	host = strings.ToLower(host)
	s := k.servers[host]
	if s != nil {
		return s
	}
	name := cmp.Or(host, "_")
	if rest, found := strings.CutPrefix(host, "*."); found {
		name = `~^[\w-]+\.` + regexp.QuoteMeta(rest) + "$"
	}
	s = said(root.at, "server")
	s.block = []*directive{said(root.at, "server_name", name), root}
	k.servers[host], k.catchesAll[root] = s, true
	k.http.block = append(k.http.block, s)
	return s
}

func (i *ingress) location(at place, args ...string) *directive {
	l := said(at, "location", args...)
	l.block = slices.Clone(i.limits)
	for _, name := range []string{"permanent-redirect", "temporal-redirect"} {
		if v := i.annotations[name]; v.text() != "" {
			l.block = append(l.block, said(v.at, "return", v.text()))
		}
	}
	return l
}

// paths makes the servers and locations of an Ingress.
func (k *controller) paths(i *ingress) {
	target := i.annotations["rewrite-target"].text()
	regular := i.annotations["use-regex"].truth(false)
	rules := i.value.get("spec", "rules").list()
	if b := i.value.get("spec", "defaultBackend"); b.there() && len(rules) == 0 {
		k.replace(k.servers[""], i.location(b.at, "/"))
	}
	for _, r := range rules {
		s := k.serverOf(r.get("host").text(), i.location(r.at, "/"))
		if aliases := i.annotations["server-alias"]; aliases.text() != "" {
			k.alias(s, aliases)
		}
		for _, p := range r.get("http", "paths").list() {
			path := p.get("path").or("/")
			expression := regular || target != "" && target != path
			l := i.location(p.at, path)
			exact := p.get("pathType").text() == "Exact" // ImplementationSpecific is Prefix there, and so is none
			switch {
			case exact:
				l.args = []string{"=", path}
			case path == "/":
				if k.replace(s, l) {
					k.expression[s] = k.expression[s] || expression
				}
				continue
			case !expression: // finish makes two of it
				l.args = []string{"Prefix", path}
			}
			same := func(o *directive) bool {
				return o.name == "location" && o.arg(len(o.args)-1) == path && (o.arg(0) == "=") == exact
			}
			if before := slices.IndexFunc(s.block, same); before >= 0 {
				k.c.lose(p.at, "the path of line %d is the same, and ingress-nginx takes that of the older Ingress", s.block[before].at.line)
				continue
			}
			k.expression[s] = k.expression[s] || expression
			s.block = append(s.block, l)
		}
	}
}

// replace puts a location / in the place of that for paths that have none, unless an older Ingress has.
func (k *controller) replace(s, l *directive) (replaced bool) {
	for at, o := range s.block {
		switch {
		case k.catchesAll[o]:
			s.block[at] = l
			return true
		case o.name == "location" && o.arg(0) == "/":
			k.c.lose(l.at, "the path of line %d is the same, and ingress-nginx takes that of the older Ingress", o.at.line)
			return false
		}
	}
	return false
}

// alias gives a server the names of an annotation that no host has.
func (k *controller) alias(s *directive, aliases value) {
	names := s.first("server_name")
	if len(names.args) > 1 {
		return // the first Ingress of a host has said them
	}
	for alias := range strings.SplitSeq(aliases.text(), ",") {
		if alias = strings.ToLower(strings.TrimSpace(alias)); alias != "" {
			names.args = append(names.args, alias)
		}
	}
}

// finish writes the locations of a server as ingress-nginx does.
func (k *controller) finish(s *directive) {
	names := s.first("server_name")
	names.args = slices.DeleteFunc(slices.Clone(names.args), func(name string) bool { return name != names.arg(0) && k.servers[name] != nil })
	var all []*directive
	for _, l := range s.block {
		if l.name == "location" && l.arg(0) == "Prefix" {
			exact := *l
			exact.args = []string{"=", l.arg(1)}
			l.args = []string{strings.TrimSuffix(l.arg(1), "/") + "/"}
			if l.at == (place{}) || !slices.ContainsFunc(s.block, func(o *directive) bool { return o.name == "location" && slices.Equal(o.args, exact.args) }) {
				all = append(all, &exact)
			}
		}
		all = append(all, l)
	}
	s.block = all
	if !k.expression[s] {
		return
	}
	path := func(l *directive) string { return l.arg(len(l.args) - 1) }
	slices.SortStableFunc(s.block, func(a, b *directive) int {
		if a.name != "location" || b.name != "location" {
			return strings.Compare(b.name, a.name) // the server's name goes first
		}
		return cmp.Or(len(path(b))-len(path(a)), strings.Compare(path(b), path(a)))
	})
	for _, l := range s.block {
		if l.name == "location" {
			l.args = []string{"~*", "^" + path(l)}
		}
	}
}
