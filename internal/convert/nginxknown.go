package convert

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// toldUnlessHarmless tells that a source's field or directive may change what requests are limited, unless
// it fits one of the patterns of those that are known not to.
func (c *converter) toldUnlessHarmless(at place, name string, harmless []string) {
	if !fitsAny(name, harmless) {
		c.lose(at, "%.60s: what this does to requests and their limits is not known here", name)
	}
}

func fitsAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		fits, err := path.Match(pattern, name)
		return fits && err == nil
	})
}

// harmlessDirectives are directives that neither limit requests nor say which location a request comes to,
// how its key is found, or what a refusal looks like. They are about connections, bodies, upstreams, logs,
// or what is done to a request once it has passed its limits. access_log is one, access_by_lua is none.
var harmlessDirectives = strings.Fields(`
	absolute_redirect access_log add_header add_trailer addition_types aio aio_write alias allow ancient_browser ancient_browser_value
	auth_basic auth_basic_user_file auth_delay auth_jwt* autoindex autoindex_* break brotli brotli_* charset charset_map charset_types chunked_transfer_encoding
	client_body_* client_header_* client_max_body_size connection_pool_size create_full_put_path daemon dav_access dav_methods debug_connection debug_points
	default_type deny directio directio_alignment disable_symlinks early_hints empty_gif env error_log etag events expires f4f f4f_* fancyindex fancyindex_*
	fastcgi_* flv google_perftools_profiles grpc_* gunzip gunzip_buffers gzip gzip_* health_check hls hls_* http2 http2_* http3 http3_* if_modified_since
	ignore_invalid_headers image_filter image_filter_* index keepalive keepalive_* large_client_header_buffers
	limit_conn_log_level limit_req_log_level lingering_* load_module lock_file log_format log_not_found log_subrequest
	lua_* map_hash_* master_process max_headers max_ranges memcached_* min_delete_depth modern_browser modern_browser_value more_clear_headers
	more_set_headers mp4 mp4_* msie_padding msie_refresh open_file_cache open_file_cache_* open_log_file_cache otel_* output_buffers override_charset pcre_jit
	perl_modules perl_require pid port_in_redirect postpone_output proxy_* quic_* read_ahead recursive_error_pages request_pool_size
	reset_timedout_connection resolver resolver_timeout root satisfy scgi_* secure_link* send_lowat send_timeout sendfile sendfile_max_chunk
	server_name_in_redirect server_names_hash_* server_tokens session_log* source_charset spdy_* ssl ssl_* status_zone stub_status
	sub_filter sub_filter_* subrequest_output_buffer_size tcp_nodelay tcp_nopush thread_pool timer_resolution types types_hash_* uninitialized_variable_warn
	userid userid_* uwsgi_* valid_referers variables_hash_* vhost_traffic_status vhost_traffic_status_display* vhost_traffic_status_zone worker_* working_directory
	xclient xml_entities xslt_* zstd zstd_* rewrite_log user referer_hash_*
	body_filter_by_lua_* header_filter_by_lua_* log_by_lua_* init_by_lua_* init_worker_by_lua_* exit_worker_by_lua_* ssl_*_by_lua_* balancer_by_lua_*
	acme_* api dav_ext_* js_body_filter js_fetch_* js_header_filter js_shared_dict_zone js_var keyval keyval_zone passenger_* random_index slice ssi_*
	opentracing opentracing_* geoip_country geoip_city geoip_org geoip2 split_clients perl_set js_set js_import js_path
	real_ip_header real_ip_recursive`)

// understoodDirectives are those that the conversion reads, or tells itself. In blocks, other directives
// than those of requests stand; the conversion does not go into the blocks of data below.
var understoodDirectives = strings.Fields(`
	http server location include limit_req limit_req_zone limit_req_status limit_req_dry_run limit_conn limit_conn_zone limit_conn_status limit_conn_dry_run
	map geo listen server_name return rewrite if set try_files error_page internal auth_request mirror mirror_request_body auth_request_set add_before_body add_after_body
	set_real_ip_from stream mail upstream limit_except limit_rate limit_rate_after`)

// dataBlocks are blocks whose lines are no directives.
var dataBlocks = strings.Fields(`map geo types charset_map split_clients geoip2 events *_by_lua_block`)

// bytesLimits limit bytes, or connections to upstreams.
var bytesLimits = strings.Fields(`limit_rate proxy_limit_rate fastcgi_limit_rate scgi_limit_rate uwsgi_limit_rate proxy_download_rate proxy_upload_rate mp4_limit_rate`)

// knownOf tells the directives of a block that are not known to be harmless there, and what those lose that
// no rule can say.
func (c *converter) knownOf(d *directive, where string) {
	trusted := false
	for _, o := range d.block {
		inStream := where == "stream" || where == "mail"
		switch {
		case slices.Contains(bytesLimits, o.name):
			if o.arg(0) != "0" && o.arg(0) != "off" {
				c.lose(o.at, "%s: Weir does not limit bytes", o.name)
			}
			continue
		case inStream:
			if o.name == "limit_conn" {
				c.lose(o.at, "limit_conn: Weir limits requests of HTTP, not connections of %s", where)
			} else if strings.Contains(o.name, "_by_lua") || strings.HasPrefix(o.name, "js_access") {
				c.lose(o.at, "%s: a program may limit connections, which is lost", o.name)
			}
			c.knownOf(o, where)
			continue
		case where == "upstream":
			if i := slices.IndexFunc(o.args, func(arg string) bool { return strings.HasPrefix(arg, "max_conns=") && arg != "max_conns=0" }); i >= 0 {
				c.lose(o.at, "max_conns: limits of connections to an upstream are Envoy's max_connections, not Weir's")
			} else if o.name == "queue" {
				c.lose(o.at, "queue: Weir has no queue in front of an upstream")
			}
			continue
		case o.name == "set_real_ip_from" && !trusted:
			trusted = true
			c.lose(o.at, "set_real_ip_from: nginx takes $remote_addr from real_ip_header, and Weir's client_ip from Envoy, which needs xff_num_trusted_hops or original_ip_detection_extensions for that")
		case o.name == "listen" && slices.Contains(o.args, "proxy_protocol"):
			c.lose(o.at, "proxy_protocol: Envoy needs its listener filter for it, and client_ip is then the address that it tells")
		case o.name == "underscores_in_headers" || o.name == "merge_slashes":
			if strings.EqualFold(o.arg(0), "on") == (o.name == "underscores_in_headers") {
				c.lose(o.at, "%s: a rule sees headers and paths as Envoy does", o.name)
			}
		case o.name == "set" && isBuiltIn(o.arg(0)):
			c.lose(o.at, "set: a rule sees %s as it comes", o.arg(0))
		case o.name == "ssi":
			if !strings.EqualFold(o.arg(0), "off") {
				c.lose(o.at, "ssi: the limits of included pages are lost")
			}
		case slices.Contains(understoodDirectives, o.name):
		default:
			c.toldUnlessHarmless(o.at, o.name, harmlessDirectives)
		}
		if len(o.block) > 0 && !fitsAny(o.name, dataBlocks) {
			c.knownOf(o, o.name)
		}
	}
}

// isBuiltIn reports whether a rule reads a variable from the request, though a directive sets it.
func isBuiltIn(name string) bool {
	_, known := variable(strings.TrimPrefix(name, "$"))
	return known || name == "$args" || name == "$query_string"
}

// redirections tells where nginx sends requests to other locations, whose limits differ, and where it
// answers some of the requests of a place before it limits them.
func (c *converter) redirections(p *places, zones map[string]map[string]*zone) {
	told := map[*directive]bool{}
	for _, s := range slices.Concat(p.scopes, p.named) {
		limited := p.limitedIn(s)
		if len(s.find("internal")) > 0 || s.kind == namedLocation {
			for _, name := range limitNames {
				for _, d := range s.find(name) {
					c.lose(d.at, "%s: a rule can't match a location that other locations send requests to", name)
				}
			}
		}
		c.rewrites(p, s, s.directive, limited, zones)
		if s.server.scope.alwaysReturns() || !p.won[s] && s.kind != namedLocation {
			continue
		}
		names := []string{"error_page", "try_files", "auth_request", "mirror", "add_before_body", "add_after_body", "index"}
		if s.answers() {
			names = names[:1]
		}
		for _, name := range names {
			for _, d := range s.effective(name) {
				if !told[d] {
					told[d] = c.redirection(p, s, d)
				}
			}
		}
	}
}

// limitedIn reports whether any request is limited that comes to a scope or, of a server, to one inside it.
func (p *places) limitedIn(s *scope) bool {
	return slices.ContainsFunc(p.scopes, func(o *scope) bool {
		return (o == s || s.kind == block && o.server == s.server) && o.limited()
	})
}

// rewritten returns the scopes whose requests a rewrite in a scope may be for. nginx does what a server says
// before it looks for the location of a request.
func (p *places) rewritten(s *scope, d *directive) (from []*scope) {
	var texts []text
	expression, limited := text{regex, partly(d.arg(0))}, s.limited()
	for _, o := range p.scopes {
		if o.server == s.server && o.kind != block {
			limited = limited || o.limited() && o.is.overlaps(expression)
			texts = append(texts, o.is)
		}
	}
	if s.kind != block || !limited {
		return []*scope{s}
	}
	n := len(texts)
	classes, ok := classesOf(append(texts, expression), "/", "?")
	if !ok {
		return slices.DeleteFunc(slices.Clone(p.scopes), func(o *scope) bool { return o.server != s.server })
	}
	for _, class := range classes {
		if class.holds[n] {
			found, _ := s.choose(func(t text) bool { return class.holds[slices.Index(texts, t)] })
			from = append(from, found)
		}
	}
	return from
}

// byPath reports whether requests of a scope are counted by what a rewrite changes.
func (s *scope) byPath(zones map[string]map[string]*zone) bool {
	for name, of := range zones {
		if slices.ContainsFunc(s.limits(name), func(d *directive) bool { z := of[zoneName(d)]; return z != nil && z.byPath }) {
			return true
		}
	}
	return false
}

// readsPath reports whether a text has a variable that a rewrite changes, or one that a map makes of such.
func readsPath(http *directive, text string, seen map[string]bool) bool {
	return slices.ContainsFunc(template(text), func(p part) bool {
		name := strings.ToLower(p.text)
		if !p.variable || seen[name] {
			return false
		}
		seen[name] = true
		return fitsAny(name, []string{"uri", "document_uri", "args", "query_string", "arg_*"}) || slices.ContainsFunc(http.find("map"), func(o *directive) bool {
			return strings.EqualFold(o.arg(1), "$"+name) && (readsPath(http, o.arg(0), seen) ||
				slices.ContainsFunc(o.block, func(l *directive) bool { return readsPath(http, l.arg(0), seen) }))
		})
	})
}

// rewrites tells what a scope's rewriting does to its requests, before they are limited.
func (c *converter) rewrites(p *places, s *scope, in *directive, limited bool, zones map[string]map[string]*zone) {
	if in.alwaysReturns() && in == s.directive {
		limited = false
	}
	for _, d := range in.block {
		switch {
		case d.name == "if" && d.wantsTLS(): // Envoy redirects
		case d.name == "if":
			c.rewrites(p, s, d, limited, zones)
		case d.name == "return" && limited, d.redirects() && limited && slices.ContainsFunc(p.rewritten(s, d), (*scope).limited):
			c.lose(d.at, "%s: nginx answers before it limits; the rules count these requests, too", d.name)
		case d.name == "rewrite" && !d.redirects() && !in.alwaysReturns():
			to := []*scope{s}
			var other *scope
			if s.kind == block || d.arg(2) != "break" {
				to = p.targets(s, d.arg(1))
				for _, from := range p.rewritten(s, d) {
					other = cmp.Or(other, p.elsewhere(from, d.arg(1), true))
				}
			}
			switch {
			case other != nil:
				c.lose(d.at, "rewrite: the limits are those of another location, such as that of line %d; the rules go by the path that comes", other.at.line)
			case slices.ContainsFunc(to, func(o *scope) bool { return o.byPath(zones) }):
				c.lose(d.at, "rewrite: nginx counts by the new path, the rules by the path that comes")
			}
		}
	}
}

// redirection tells where a directive sends requests that have no limit yet to a place with one.
func (c *converter) redirection(p *places, s *scope, d *directive) (told bool) {
	var targets []string
	switch d.name {
	case "error_page":
		to := d.arg(len(d.args) - 1)
		codes := d.args[:max(0, len(d.args)-1)]
		answered := func(code string) bool {
			return code == "404" && !s.alwaysReturns() || slices.ContainsFunc(s.find("return"), func(o *directive) bool { return o.arg(0) == code })
		}
		if s.answers() && !slices.ContainsFunc(codes, answered) {
			return false
		}
		changes := slices.ContainsFunc(codes, func(code string) bool { return strings.HasPrefix(code, "=") })
		for _, name := range limitNames {
			usual := slices.Contains(codes, "500") || slices.Contains(codes, "502")
			if status := s.effectiveOne(name+"_status", "503"); len(s.limits(name)) > 0 && slices.Contains(codes, status) && (!usual || changes) {
				what := d.name
				if to == customErrors {
					what = to[1:]
				}
				c.lose(d.at, "%s: a refusal gets the rule's response, not this page", what)
				told = true
			}
		}
		if strings.Contains(to, "://") {
			return told
		}
		targets = []string{to}
	case "try_files":
		to := d.arg(len(d.args) - 1)
		if strings.HasPrefix(to, "=") {
			return told
		}
		targets = []string{to}
	case "index":
		for _, file := range d.args {
			if strings.Contains(file, "$") {
				return told
			}
			targets = append(targets, "/0/"+strings.TrimPrefix(file, "/"))
		}
	default:
		if d.arg(0) == "off" {
			return told
		}
		targets = []string{d.arg(0)}
	}
	for _, to := range targets {
		if other := p.elsewhere(s, to, false); other != nil {
			c.lose(d.at, "%s: nginx limits requests that it sends to another location, such as that of line %d; the rules go by the path that comes", d.name, other.at.line)
			return true
		}
	}
	return told
}

// elsewhere returns a scope that a request of a scope may be sent to, and whose limits differ. Only if
// anew is set does nginx limit a request that was limited before.
func (p *places) elsewhere(s *scope, to string, anew bool) *scope {
	differs := func(o *scope) bool {
		if anew {
			return !sameLimits(s, o)
		}
		for _, name := range limitNames {
			if len(s.limits(name)) == 0 && len(o.effective(name)) > 0 {
				return true
			}
		}
		return false
	}
	for _, o := range p.targets(s, to) {
		if o != s && differs(o) {
			return o
		}
	}
	return nil
}

// targets returns the scopes of the same server that a path, which may have variables, can lead to.
func (p *places) targets(s *scope, to string) []*scope {
	if to, _, _ = strings.Cut(to, "?"); strings.HasPrefix(to, "/") && !strings.Contains(to, "$") {
		found, _ := s.server.scope.choose(func(t text) bool { return t.matches(to) })
		return []*scope{found}
	}
	return slices.DeleteFunc(slices.Concat(p.scopes, p.named), func(o *scope) bool {
		named := strings.HasPrefix(to, "@")
		return o.server != s.server || named != (o.kind == namedLocation) || named && o.arg(0) != to
	})
}
