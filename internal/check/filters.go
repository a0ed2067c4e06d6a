package check

import (
	"slices"
	"strconv"
	"strings"

	"weir/config"
)

// filters are those of a connection manager, as the plugin at an index of them meets them. They are
// unknown if there are none.
type filters struct {
	manager *node
	all     []*node
	at      int
	// tokens are those that resources of Kubernetes have verified before the plugin, unless it is
	// early: then they do after it.
	tokens []tokens
	early  bool
}

// before returns the configurations of all filters of a type that requests pass before the plugin.
func (f *filters) before(kind string) []*node { return filtersOf(f.all[:f.at], kind) }

// after returns those that requests pass after it, and responses before it.
func (f *filters) after(kind string) []*node {
	return filtersOf(f.all[min(f.at+1, len(f.all)):], kind)
}

func filtersOf(some []*node, kind string) (configurations []*node) {
	for _, filter := range some {
		typed := filter.get("typed_config")
		name := typeOf(typed.get("@type"))
		if strings.HasSuffix(name, suffixTypeStruct) {
			name, typed = typeOf(typed.get("type_url")), typed.get("value")
		}
		if strings.HasPrefix(name, "envoy.extensions.filters.http."+kind+".") {
			configurations = append(configurations, typed)
		}
	}
	return configurations
}

// opaque are filters that may verify whatever they like.
var opaque = []string{"ext_authz", "ext_proc", "lua", "wasm", "golang", "dynamic_modules", "oauth2"}

// elsewhere reports whether there may be verifying filters that the document does not tell of.
func (f *filters) elsewhere() bool {
	return len(f.all) == 0 || slices.ContainsFunc(f.all[:f.at], func(filter *node) bool { return filter.get("typed_config") == nil })
}

// readDifferently warns of parts of a request that a filter before the plugin verifies or sets, and
// that the plugin may read differently, and of bodies that it can't read.
func (c *checker) readDifferently(f *filters, read *config.Config, warn func(path, problem string)) {
	if c.looked = min(c.looked+f.values()*selectors(read), maxLooked); c.looked == maxLooked {
		warn("", "the filters around it have too much in them to be compared with what its rules read")
		return
	}
	verified := f.verified()
	for i := range read.Rules {
		rule := &read.Rules[i]
		path := "rules[" + strconv.Itoa(i) + "]"
		of := func(path string, s *config.Selector) {
			if s == nil {
				return
			}
			problem := ""
			switch s.Kind {
			case config.SelectClaim:
				problem = f.claim(verified, s, rule)
			case config.SelectHeader:
				if problem = f.header(verified, s.Name, rule); problem == "" {
					problem = f.apiKey("header", s.Name)
				}
			case config.SelectClientIP, config.SelectInNetworks:
				problem = f.address()
			case config.SelectQuery:
				problem = f.apiKey("query", s.Name)
			case config.SelectCookie:
				problem = f.apiKey("cookie", s.Name)
			}
			if problem != "" {
				warn(path, problem)
			}
		}
		for j := range rule.Key {
			of(path+".key["+strconv.Itoa(j)+"]", &rule.Key[j])
		}
		if rule.Reserve {
			of(path+".reserve", rule.CostFrom)
		} else {
			of(path+".cost", rule.CostFrom)
		}
		of(path+".overrides.by", rule.Overrides.By)
		for j := range rule.LimitFrom {
			of(path+".limits["+strconv.Itoa(rule.LimitFrom[j].Limit)+"].limit_from", &rule.LimitFrom[j].From)
		}
		for j := range rule.Except {
			if problem := f.address(); problem != "" && len(rule.Except[j].Networks) > 0 {
				warn(path+".except["+strconv.Itoa(j)+"].client_ip", problem)
			}
		}
		if rule.Usage != nil && f.decompresses("response", f.before) && !f.decompresses("response", f.after) {
			warn(path+".cost_on_response", "a compressed response can't be read, and costs what was reserved: "+
				"the decompressor has to come after this filter, as responses pass filters from the last to the first")
		}
		if f.decompresses("request", f.after) && !f.decompresses("request", f.before) {
			ofBodies(path, rule, func(path, unread string) {
				if unread != nothingFound {
					unread = defaultTaken
				}
				warn(path, unread+" of a compressed request: the decompressor has to come before this filter")
			})
		}
	}
}

const (
	// maxLooked bounds the values of filters that are looked at, once for each selector: with aliases there
	// may be more than a file has bytes.
	maxLooked = 1 << 24
	// deepest is how deep anything is in a filter that is looked at, but for requirements in others.
	deepest = 12
)

// values is how many values the filters have in them, up to maxLooked.
func (f *filters) values() int {
	all, sizes := 0, map[sized]int{}
	for _, filter := range f.all {
		all = min(all+filter.size(deepest, maxLooked, sizes), maxLooked)
	}
	return all
}

// selectors is how many there are at most in a configuration.
func selectors(read *config.Config) (all int) {
	for i := range read.Rules {
		rule := &read.Rules[i]
		all += 2 + len(rule.Key) + len(rule.LimitFrom) + len(rule.Except)
	}
	return all
}

// address says that clients may choose their address: Envoy has it from what they send, unless the
// connection manager says otherwise.
func (f *filters) address() string {
	trusts := f.manager.get("use_remote_address")
	if !strings.HasSuffix(typeOf(f.manager.get("@type")), ".HttpConnectionManager") || trusts != nil && trusts.text == "true" ||
		f.manager.get("original_ip_detection_extensions") != nil {
		return ""
	}
	return "a client that connects to this Envoy chooses its address by x-forwarded-for: want use_remote_address: true, unless only proxies connect that set it"
}

// decompresses reports whether any of some filters decompresses a direction.
func (f *filters) decompresses(direction string, some func(kind string) []*node) bool {
	return slices.ContainsFunc(some("decompressor"), func(n *node) bool {
		enabled := n.get(direction+"_direction_config", "common_config", "enabled", "default_value")
		return enabled == nil || enabled.text != "false"
	})
}

// header says why a client may choose a header that a filter before sets.
func (f *filters) header(verified []tokens, name string, rule *config.Rule) string {
	for _, mutation := range f.before("header_mutation") {
		for _, m := range mutation.get("mutations", "request_mutations").elements() {
			appended := m.get("append")
			switch action := appended.get("append_action").string(); {
			case strings.EqualFold(m.get("remove").string(), name):
				return ""
			case strings.EqualFold(appended.get("header", "key").string(), name) && !strings.HasPrefix(action, "OVERWRITE"):
				return "a client's own " + name + " stays before the value that header_mutation appends: want append_action: OVERWRITE_IF_EXISTS_OR_ADD"
			}
		}
	}
	for _, t := range verified {
		if rule.Match.Path == nil && t.open && slices.Contains(t.claims(), name) {
			return "a client may send any " + name + " where jwt_authn wants no token, as Envoy up to 1.36 leaves it there"
		}
	}
	return ""
}

// apiKey says that a client has several counters with one key, if a filter before takes it of a part of
// the request.
func (f *filters) apiKey(kind, name string) string {
	for _, auth := range f.before("api_key_auth") {
		for _, source := range auth.get("key_sources").elements() {
			if !strings.EqualFold(source.get(kind).string(), name) {
				continue
			}
			want := "a header that its forwarding sets"
			if set := auth.get("forwarding", "header").string(); set != "" {
				want = `{"header": ` + strconv.Quote(strings.ToLower(set)) + "}, which its forwarding sets"
			}
			return "api_key_auth takes a key in several forms, and a client has a counter for each: want " + want
		}
	}
	return ""
}
