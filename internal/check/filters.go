package check

import (
	"slices"
	"strconv"
	"strings"

	"weir/config"
)

// filters are the filters of a connection manager, with the plugin at an index among them. None
// means that they are unknown.
type filters struct {
	manager *node
	all     []*node
	at      int
	// tokens are tokens that Kubernetes resources verify, before the plugin unless it is early.
	tokens []tokens
	early  bool
}

// before returns the configurations of all filters of a type before the plugin.
func (f *filters) before(kind string) []*node { return filtersOf(f.all[:f.at], kind) }

// after returns those after the plugin, which responses pass before it.
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

// opaque are filters that may verify anything.
var opaque = []string{"ext_authz", "ext_proc", "lua", "wasm", "golang", "dynamic_modules", "oauth2"}

// elsewhere reports whether the document may lack filters that verify.
func (f *filters) elsewhere() bool {
	return len(f.all) == 0 || slices.ContainsFunc(f.all[:f.at], func(filter *node) bool { return filter.get("typed_config") == nil })
}

// readDifferently warns about parts of a request that an earlier filter verifies or sets but that
// the plugin may read differently, and about bodies that it can't read.
func (c *checker) readDifferently(f *filters, read *config.Config, warn func(path, problem string)) {
	if c.looked = min(c.looked+f.values()*selectors(read), maxLooked); c.looked == maxLooked {
		warn("", "the filters around it are too large to be compared with its rules")
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
		if rule.Classes != nil {
			of(path+".classes.by", &rule.Classes.By)
		}
		for j := range rule.LimitFrom {
			of(path+".limits["+strconv.Itoa(rule.LimitFrom[j].Limit)+"].limit_from", &rule.LimitFrom[j].From)
		}
		ofCondition := func(path string, s *config.Selector, _ *config.StringMatch) {
			if s.Kind == config.SelectClaim || s.Kind == config.SelectClientIP {
				of(path, s)
			}
		}
		eachCondition(path, rule, ofCondition)
		if rule.Usage != nil && f.decompresses("response", f.before) && !f.decompresses("response", f.after) {
			warn(path+".cost_on_response", "a compressed response can't be read, and costs what was reserved: "+
				"the decompressor has to come after this filter, because responses pass filters from the last to the first")
		}
		if f.decompresses("request", f.after) && !f.decompresses("request", f.before) {
			ofBodies(path, rule, func(path, unread string) {
				if unread != nothingFound {
					unread = defaultTaken
				}
				warn(path, unread+" for a compressed request: the decompressor has to come before this filter")
			})
		}
	}
}

const (
	// maxLooked bounds the values of filters that are compared, counted once per selector. With
	// aliases there may be more values than a file has bytes.
	maxLooked = 1 << 24
	// deepest is the greatest depth of any value of interest, nested requirements excepted.
	deepest = 12
)

// values counts the values in all filters, up to maxLooked.
func (f *filters) values() int {
	all, sizes := 0, map[sized]int{}
	for _, filter := range f.all {
		all = min(all+filter.size(deepest, maxLooked, sizes), maxLooked)
	}
	return all
}

// selectors counts the selectors of a configuration, rather too many than too few.
func selectors(read *config.Config) (all int) {
	for _, rule := range read.Rules {
		all += 2 + len(rule.Key) + len(rule.LimitFrom)
		eachCondition("", &rule, func(string, *config.Selector, *config.StringMatch) { all++ })
	}
	return all
}

// address warns if clients may choose their address. Envoy takes it from a header that they send,
// unless the connection manager says otherwise.
func (f *filters) address() string {
	trusts := f.manager.get("use_remote_address")
	if !strings.HasSuffix(typeOf(f.manager.get("@type")), ".HttpConnectionManager") || trusts != nil && trusts.text == "true" ||
		f.manager.get("original_ip_detection_extensions") != nil {
		return ""
	}
	return "a client that connects to this Envoy chooses its address by x-forwarded-for: want use_remote_address: true, unless only proxies that set the header connect"
}

// decompresses reports whether one of some filters decompresses a direction.
func (f *filters) decompresses(direction string, some func(kind string) []*node) bool {
	return slices.ContainsFunc(some("decompressor"), func(n *node) bool {
		enabled := n.get(direction+"_direction_config", "common_config", "enabled", "default_value")
		return enabled == nil || enabled.text != "false"
	})
}

// header says how a client may choose a header that an earlier filter sets.
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
			return "a client may send any " + name + " where jwt_authn requires no token, because Envoy up to 1.36 does not remove it"
		}
	}
	return ""
}

// apiKey warns if an earlier filter takes the API key from a part of the request: a client then has
// several counters for one key.
func (f *filters) apiKey(kind, name string) string {
	for _, auth := range f.before("api_key_auth") {
		for _, source := range auth.get("key_sources").elements() {
			if !strings.EqualFold(source.get(kind).string(), name) {
				continue
			}
			want := "a header that it sets by its forwarding"
			if set := auth.get("forwarding", "header").string(); set != "" {
				want = `{"header": ` + strconv.Quote(strings.ToLower(set)) + "}, which it sets by its forwarding"
			}
			return "api_key_auth accepts a key in several forms, each with a counter of its own: want " + want
		}
	}
	return ""
}
