package check

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"weir/config"
)

// tokens describe the JSON Web Tokens that a filter verifies.
type tokens struct {
	providers []provider
	// optional means that requests without a token pass, and failed that those with an invalid
	// token do. extracted means that an invalid token is treated as valid. open means that some
	// requests need no token by any rule.
	optional, failed, extracted, open bool
}

// provider says where the tokens of an issuer are, and where their claims go.
type provider struct {
	name            string
	headers         []place
	params, cookies []string
	payload         string // its payload_in_metadata; unknownPayload if the control plane chooses
	claims          []string
}

// place is a header, and the text before a token in it.
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
		// The first matching rule decides.
		if match := rule.get("match"); match.get("prefix").string() == "/" && len(match.names) == 1 {
			closed = true
		}
		t.require(requirement)
	}
	t.open = (t.open || !closed) && rules != nil && n.get("filter_state_rules") == nil
	return t
}

// require records what a JwtRequirement allows.
func (t *tokens) require(n *node) {
	seen := map[*node]bool{} // an alias may contain itself
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

// providerFields are an API's names for the fields of a provider.
type providerFields struct {
	headers, prefix, params, cookies []string
	claims, claimHeader, payload     string
}

var (
	fieldsOfEnvoy = providerFields{
		headers: []string{"from_headers"}, prefix: []string{"value_prefix"}, params: []string{"from_params"}, cookies: []string{"from_cookies"},
		claims: "claim_to_headers", claimHeader: "header_name", payload: "payload_in_metadata",
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
	p := provider{name: name, payload: unknownPayload}
	if fields.payload != "" {
		p.payload = n.get(fields.payload).string()
	}
	for _, h := range n.get(fields.headers...).elements() {
		p.headers = append(p.headers, place{strings.ToLower(h.get("name").string()), h.get(fields.prefix...).string()})
	}
	p.params, p.cookies = texts(n.get(fields.params...)), texts(n.get(fields.cookies...))
	if len(p.headers)+len(p.params)+len(p.cookies) == 0 {
		// Envoy's defaults.
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

// readResources reads the tokens that resources of Istio and Envoy Gateway verify. Any such
// resource in a file is assumed to apply to its plugins.
func readResources(documents []*node) (all []tokens) {
	for _, n := range resourcesOf(documents) {
		switch n.get("kind").string() {
		case "RequestAuthentication":
			t := tokens{optional: true}
			for _, rule := range n.get("spec", "jwtRules").elements() {
				t.providers = append(t.providers, readProvider(rule.get("issuer").string(), rule, fieldsOfIstio))
			}
			all = append(all, t)
		case "SecurityPolicy":
			jwt := n.get("spec", "jwt")
			t := tokens{}
			if optional := jwt.get("optional"); optional != nil {
				t.optional = optional.text == "true"
			}
			for _, one := range jwt.get("providers").elements() {
				t.providers = append(t.providers, readProvider(one.get("name").string(), one, fieldsOfGateway))
			}
			if len(t.providers) > 0 {
				all = append(all, t)
			}
		}
	}
	return all
}

// claim says why a claim may come from another token than the verified token, or from none.
func (f *filters) claim(verified []tokens, s *config.Selector, rule *config.Rule) string {
	switch {
	case len(verified) > 0 && s.Metadata != "":
		return claimOfMetadata(verified, s.Metadata)
	case len(verified) > 0:
		if problem := claimOfHeader(verified, s.Name, rule); problem != "" {
			return "jwt_authn " + problem + ": want " + safer(verified, s) + ", which reads the verified token"
		}
	case f.early && len(f.tokens) > 0:
		return "no filter has verified a token yet, because plugins of phase AUTHN come first"
	case f.elsewhere():
	case s.Metadata != "":
		return "is always absent: no jwt_authn before this filter provides a payload"
	case len(f.after("jwt_authn")) > 0:
		return "a client may send any token: jwt_authn verifies it after this filter, and has to come before it"
	case !slices.ContainsFunc(opaque, func(kind string) bool { return len(f.before(kind)) > 0 }):
		return "a client may send any token: no jwt_authn before this filter verifies it"
	}
	return ""
}

// safer returns the selector of the verified token.
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
		return `"metadata" in place of a header, and a payload_in_metadata`
	}
	return `{"jwt_claim": ` + strconv.Quote(s.Claim) + `, "metadata": ` + strconv.Quote(payload) + "}"
}

// claimOfHeader says why jwt_authn may have verified another token than that in the header, or
// none.
func claimOfHeader(verified []tokens, name string, rule *config.Rule) string {
	for _, t := range verified {
		switch {
		case t.failed, t.extracted:
			return "lets requests with an invalid token pass"
		case t.open && rule.Match.Path == nil:
			return "lets requests without a token pass where none of its rules requires a token"
		}
		for i := range t.providers {
			if problem := t.providers[i].differs(name, t.optional); problem != "" {
				return problem
			}
		}
	}
	return ""
}

// differs says why a provider's token may not be the token in a header.
func (p *provider) differs(header string, optional bool) string {
	const unread = ", which this rule does not read"
	for _, h := range p.headers {
		switch {
		case h.header != header:
			return "takes a token from header " + h.header + unread
		case h.prefix == "Bearer " && (header == "authorization" || !optional), h.prefix == "" && header != "authorization":
		case h.prefix == "Bearer ":
			return `accepts a token without "Bearer " before it, which this rule requires`
		default:
			return "takes a token after " + strconv.Quote(h.prefix) + unread
		}
	}
	for _, param := range p.params {
		return "takes a token from parameter " + param + unread
	}
	for _, cookie := range p.cookies {
		return "takes a token from cookie " + cookie + unread
	}
	return ""
}

// claimOfMetadata says why a payload may be absent, or not verified.
func claimOfMetadata(verified []tokens, payload string) string {
	var names, without []string
	for _, t := range verified {
		if t.extracted {
			return "may come from a token that jwt_authn has not verified, because of extract_only_without_validation"
		}
		for _, p := range t.providers {
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
		return "is absent for a token of provider " + list(without) + ", which has another payload_in_metadata"
	}
	return ""
}
