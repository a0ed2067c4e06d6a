package check

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"weir/config"
)

// tokens are the JSON Web Tokens that a filter verifies.
type tokens struct {
	providers []provider
	// optional reports whether requests without a token pass, failed whether those with an invalid
	// token do, extracted whether such a token is taken for valid, and open whether there are
	// requests that no rule wants a token of.
	optional, failed, extracted, open bool
}

// provider says where the tokens of an issuer are, and what is left of them.
type provider struct {
	name            string
	headers         []place
	params, cookies []string
	payload         string // its payload_in_metadata; unknownPayload if the control plane chooses
	claims          []string
}

// place is a header, and what is before a token in it.
type place struct{ header, prefix string }

const unknownPayload = "\x00"

func (t *tokens) claims() (headers []string) {
	for i := range t.providers {
		headers = append(headers, t.providers[i].claims...)
	}
	return headers
}

// verified returns the tokens that are verified before the plugin.
func (f *filters) verified() []tokens {
	all := slices.Clone(f.tokens)
	if f.early {
		all = nil
	}
	for _, n := range f.before("jwt_authn") {
		all = append(all, readAuthentication(n))
	}
	return all
}

// readAuthentication reads a JwtAuthentication of Envoy's.
func readAuthentication(n *node) (t tokens) {
	if providers := n.get("providers"); providers != nil {
		for i, name := range providers.names {
			t.providers = append(t.providers, readProvider(name.text, providers.children[i], fieldsOfEnvoy))
		}
	}
	rules, closed := n.get("rules"), false
	for _, rule := range rules.elements() {
		requirement := rule.get("requires")
		if name := rule.get("requirement_name").string(); name != "" {
			requirement = n.get("requirement_map", name)
		}
		if requirement == nil || len(requirement.names) == 0 {
			t.open = t.open || !closed
			continue
		}
		// The first rule that matches counts.
		if match := rule.get("match"); match.get("prefix").string() == "/" && len(match.names) == 1 {
			closed = true
		}
		t.require(requirement)
	}
	t.open = (t.open || !closed) && rules != nil && n.get("filter_state_rules") == nil
	return t
}

// require notes what a JwtRequirement lets pass.
func (t *tokens) require(n *node) {
	seen := map[*node]bool{} // an alias may lead back
	for rest := []*node{n}; len(rest) > 0; rest = rest[1:] {
		n := rest[0]
		if seen[n] {
			continue
		}
		seen[n] = true
		t.optional = t.optional || n.get("allow_missing") != nil
		t.failed = t.failed || n.get("allow_missing_or_failed") != nil
		t.extracted = t.extracted || n.get("extract_only_without_validation") != nil
		for _, several := range []string{"requires_any", "requires_all"} {
			if list := n.get(several, "requirements"); !seen[list] {
				seen[list] = true
				rest = append(rest, list.elements()...)
			}
		}
	}
}

// providerFields are the names that an API has for a provider's fields.
type providerFields struct {
	headers, prefix, params, cookies []string
	claims, claimHeader              string
}

var (
	fieldsOfEnvoy = providerFields{
		headers: []string{"from_headers"}, prefix: []string{"value_prefix"}, params: []string{"from_params"}, cookies: []string{"from_cookies"},
		claims: "claim_to_headers", claimHeader: "header_name",
	}
	fieldsOfIstio = providerFields{
		headers: []string{"fromHeaders"}, prefix: []string{"prefix"}, params: []string{"fromParams"}, cookies: []string{"fromCookies"},
		claims: "outputClaimToHeaders", claimHeader: "header",
	}
	fieldsOfGateway = providerFields{
		headers: []string{"extractFrom", "headers"}, prefix: []string{"valuePrefix"}, params: []string{"extractFrom", "params"},
		cookies: []string{"extractFrom", "cookies"}, claims: "claimToHeaders", claimHeader: "header",
	}
)

func readProvider(name string, n *node, fields providerFields) provider {
	p := provider{name: name, payload: n.get("payload_in_metadata").string()}
	for _, h := range n.get(fields.headers...).elements() {
		p.headers = append(p.headers, place{strings.ToLower(h.get("name").string()), h.get(fields.prefix...).string()})
	}
	p.params, p.cookies = texts(n.get(fields.params...)), texts(n.get(fields.cookies...))
	if len(p.headers)+len(p.params)+len(p.cookies) == 0 {
		// Envoy's own places.
		p.headers, p.params = []place{{"authorization", "Bearer "}}, []string{"access_token"}
	}
	for _, claim := range n.get(fields.claims).elements() {
		p.claims = append(p.claims, strings.ToLower(claim.get(fields.claimHeader).string()))
	}
	return p
}

func texts(n *node) (all []string) {
	for _, e := range n.elements() {
		all = append(all, e.string())
	}
	return all
}

// readResources reads what resources of Istio and Envoy Gateway have verified. If a file has any,
// they are taken to be for its plugins.
func readResources(documents []*node) (all []tokens) {
	for _, n := range resourcesOf(documents) {
		switch n.get("kind").string() {
		case "RequestAuthentication":
			t := tokens{optional: true}
			for _, rule := range n.get("spec", "jwtRules").elements() {
				p := readProvider(rule.get("issuer").string(), rule, fieldsOfIstio)
				p.payload = unknownPayload
				t.providers = append(t.providers, p)
			}
			all = append(all, t)
		case "SecurityPolicy":
			jwt := n.get("spec", "jwt")
			t := tokens{}
			if optional := jwt.get("optional"); optional != nil {
				t.optional = optional.text == "true"
			}
			for _, one := range jwt.get("providers").elements() {
				p := readProvider(one.get("name").string(), one, fieldsOfGateway)
				p.payload = unknownPayload
				t.providers = append(t.providers, p)
			}
			if len(t.providers) > 0 {
				all = append(all, t)
			}
		}
	}
	return all
}

// claim says why a claim may be that of another token than was verified, or of none.
func (f *filters) claim(verified []tokens, s *config.Selector, rule *config.Rule) string {
	switch {
	case len(verified) > 0 && s.Metadata != "":
		return claimOfMetadata(verified, s.Metadata)
	case len(verified) > 0:
		if problem := claimOfHeader(verified, s.Name, rule); problem != "" {
			return "jwt_authn " + problem + ": want " + safer(verified, s) + ", which it has verified"
		}
	case f.early && len(f.tokens) > 0:
		return "nobody has verified a token yet, as plugins of phase AUTHN come first"
	case f.elsewhere():
	case s.Metadata != "":
		return "is always absent: no jwt_authn before this filter leaves a payload"
	case len(f.after("jwt_authn")) > 0:
		return "a client may send any token: jwt_authn verifies it after this filter, and has to come before"
	case !slices.ContainsFunc(opaque, func(kind string) bool { return len(f.before(kind)) > 0 }):
		return "a client may send any token: no jwt_authn before this filter verifies it"
	}
	return ""
}

// safer is the selector that reads what was verified.
func safer(verified []tokens, s *config.Selector) string {
	payload := ""
	for _, t := range verified {
		for i := range t.providers {
			if p := t.providers[i].payload; p != unknownPayload {
				payload = cmp.Or(payload, p)
			}
		}
	}
	if payload == "" {
		return `the claim of "metadata", with a payload_in_metadata,`
	}
	return `{"jwt_claim": ` + strconv.Quote(s.Claim) + `, "metadata": ` + strconv.Quote(payload) + "}"
}

// claimOfHeader says how jwt_authn may have verified another token than the header's, or none.
func claimOfHeader(verified []tokens, name string, rule *config.Rule) string {
	for _, t := range verified {
		switch {
		case t.failed, t.extracted:
			return "lets requests pass whose token is not valid"
		case t.open && rule.Match.Path == nil:
			return "verifies no token where no rule of it wants one"
		}
		for i := range t.providers {
			if problem := t.providers[i].differs(name, t.optional); problem != "" {
				return problem
			}
		}
	}
	return ""
}

// differs says how a provider's token may not be the token that is read from a header.
func (p *provider) differs(header string, optional bool) string {
	const unread = ", which is not read here"
	for _, h := range p.headers {
		switch {
		case h.header != header:
			return "takes a token of header " + h.header + unread
		case h.prefix == "Bearer " && (header == "authorization" || !optional), h.prefix == "" && header != "authorization":
		case h.prefix == "Bearer ":
			return `lets requests pass that have no "Bearer " before the token, which is read here`
		default:
			return "takes a token behind " + strconv.Quote(h.prefix) + unread
		}
	}
	for _, param := range p.params {
		return "takes a token of parameter " + param + unread
	}
	for _, cookie := range p.cookies {
		return "takes a token of cookie " + cookie + unread
	}
	return ""
}

// claimOfMetadata says why the payload of a name may not be there, or not be a verified one.
func claimOfMetadata(verified []tokens, payload string) string {
	var names, without []string
	for _, t := range verified {
		if t.extracted {
			return "may be of a token that jwt_authn has not verified, by extract_only_without_validation"
		}
		for i := range t.providers {
			p := &t.providers[i]
			if p.payload == unknownPayload {
				return ""
			}
			if p.payload != payload {
				without = append(without, p.name)
			}
			if p.payload != "" && !slices.Contains(names, p.payload) {
				names = append(names, p.payload)
			}
		}
	}
	switch {
	case !slices.Contains(names, payload):
		return "is always absent: want the payload_in_metadata of a provider of jwt_authn, which has " + list(names) + ", got " + strconv.Quote(payload)
	case len(without) > 0:
		return "is absent where a token is of provider " + list(without) + ", which has another payload_in_metadata"
	}
	return ""
}
