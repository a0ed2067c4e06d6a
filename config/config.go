// Package config parses the plugin's JSON configuration into the form that the filter uses.
//
// [Parse] checks a whole document and reports every mistake in it, each with the path of the value
// and with what would be right. The returned [Config] needs no further checks. The package is part
// of the plugin, so it avoids fmt, encoding/json, regexp and net/netip, which would make the module
// larger.
package config

import (
	"math"

	"weir/internal/clientip"
	"weir/internal/failure"
	"weir/internal/fields"
	"weir/internal/jsonpath"
	"weir/internal/usage"
	"weir/window"
)

// Format is the version of the configuration grammar. It changes whenever a document that was
// accepted is refused or changes its meaning.
const Format = 1

// Config is a checked configuration. Parse does not modify it later, so any number of goroutines
// may read it.
type Config struct {
	// Namespace isolates counters, in the proxy and in the backend: 1 to 64 of A-Za-z0-9._-.
	Namespace string
	// Backend is the zero value if no rule needs a backend.
	Backend Backend
	// OnBackendFailure says how requests are decided while the backend can't be reached.
	OnBackendFailure failure.Mode
	// Capacity is the most live counters that the table in shared data has space for: 1 to 2^24.
	Capacity int
	// Prices are lists of the prices of models' tokens, at most 16.
	Prices []*Prices
	// Rules are in the order of the configuration, 1 to 256.
	Rules []Rule
	// ResetUnit is the unit of X-RateLimit-Reset.
	ResetUnit fields.ResetUnit
	// HeaderNames are other names for the headers about limits, each header at most once.
	HeaderNames []fields.Name
	// RetryAfterJitter is the largest random share, in thousandths, by which Retry-After is
	// lengthened: 1 to 999, or 0 for none.
	RetryAfterJitter uint16
	// TrustMarks says that all requests come from a proxy with Weir, whose marks stay.
	TrustMarks bool
	// UsagePath is the path at which the plugin itself tells clients how their limits stand: / and up to
	// 255 visible ASCII characters without ? and #; or empty.
	UsagePath string
	// AccessLog says that what was decided is put where Envoy's access logs find it.
	AccessLog bool
	// Replicas is how many proxies divide the limits of rules with Share: 1 to 10,000. It is 0 if there
	// are no such rules, or if a property tells and no proxy is there to ask.
	Replicas uint64
	// Digest differs between configurations that are not the same, but for the order of fields and what
	// is in Backend, which each proxy may have of its own.
	Digest uint64
}

// Backend says how to reach the counter backend.
type Backend struct {
	_ [0]func() // keeps Go from generating an equality function

	// Cluster is the name of Envoy's cluster: 1 to 512 visible ASCII characters, as are the next
	// two.
	Cluster string
	// Authority is the :authority of callouts. By default it is Cluster, or the host in a cluster
	// name of Istio's.
	Authority string
	// Token is sent as a bearer token. It has up to 8192 characters; empty means none.
	Token string
	// KeySecret keys the hashes that name keys in the backend. It has MinKeySecret to 8192
	// characters; empty means none.
	KeySecret string
	// Timeout bounds one callout, in whole milliseconds from 1 ms to 1 minute.
	Timeout Duration
}

// MinKeySecret is the least length of a KeySecret: shorter secrets can be guessed.
const MinKeySecret = 16

// Response is the answer to a rejected request.
type Response struct {
	// Status is the HTTP status, 200 to 599.
	Status int
	// Body may be empty, and must be if the status has no body (204, 205, 304). ContentType is
	// never empty, but is sent only with a body.
	Body        string
	ContentType string
	// Headers are up to 32 further headers, sorted by name. Names are unique and in lower case.
	Headers []Header
	// GRPCStatus and GRPCMessage replace Status and Body for requests of the content type
	// application/grpc. GRPCStatus is 0 to 16. GRPCMessage may be empty.
	GRPCStatus  int
	GRPCMessage string
	// Preset answers in the form that the provider's own clients understand, in place of Status,
	// Body and ContentType; fields.NoProvider means none.
	Preset fields.Provider
}

// Header is a header of a response.
type Header struct{ Name, Value string }

// Rule limits the requests that it matches.
type Rule struct {
	// Name is unique in the configuration: 1 to 64 of A-Za-z0-9_-.
	Name  string
	Match Match
	// Except are requests that the rule ignores: a request need match only one of them. At most 64.
	Except []Match
	// SyncRate is the interval between two pushes to the backend, in whole milliseconds up to a
	// day. If it is 0, the backend decides every request. If it is negative, this proxy counts
	// alone.
	SyncRate Duration
	// Share means that each proxy has its part of the limits, which are divided already, and counts
	// alone.
	Share bool
	// Shadow means that the rule only measures: it rejects nothing and sets no header.
	Shadow bool
	// Response answers a request if this rule is the first that rejects it.
	Response *Response
	// Headers are the sets of response headers that mention the rule.
	Headers fields.Set
	// Key selects the parts of a request that name its counter. Without any, all requests share a
	// counter. At most 16.
	Key []Selector
	// Limits must all have room for a request to pass. There are 1 to 8, no two of the same shape.
	Limits []window.Limit
	// Classes share the limits; nil for none.
	Classes *Classes
	// LimitFrom are the limits that a request may set, each at most once.
	LimitFrom []LimitFrom
	// Overrides are other limits for some values and keys. They take precedence over LimitFrom.
	Overrides Overrides
	// Cost is how many hits a request takes, unless CostFrom selects a part of the request that
	// says so. That number is then raised to CostLeast and lowered to CostMost, which is at least
	// 1, and the largest uint64 for no bound. Without CostFrom both are 0.
	Cost                uint64
	CostFrom            *Selector
	CostLeast, CostMost uint64
	// CostFromBody says where the request's body has the cost, in place of Cost and CostFrom; nil
	// for none. CostLeast and CostMost bound it too.
	CostFromBody *BodyCost
	// CostOnResponse is the part of the response, or of the request, with the number of hits to
	// count once the response is there; nil for none.
	CostOnResponse *Selector
	// Reveal is how many characters of a key's values people may see: 1 to 64, RevealPlain for all,
	// 0 for only its hash.
	Reveal uint8
	// Usage finds the cost in the response's body, in place of CostOnResponse; nil for none.
	Usage *Usage
	// Prices convert the rule's tokens to money; nil if it counts tokens. Usage then finds the
	// number of tokens of each kind. With Reserve, the costs of a request are tokens of its answer.
	Prices *Prices
	// Reserve means that the request's cost is only taken until the response has told its own,
	// which then replaces it. Without Reserve the response's cost is added.
	Reserve bool
	// Hold is how long a request may hold places of a rule whose only limit is in_flight: 1 s to
	// 366 d. It is 0 for any other rule.
	Hold Duration
	// MostPerRequest is the most that a request may reserve, whatever room there is; 0 for no
	// bound.
	MostPerRequest uint64
	// OnFailure says whether a reservation stays taken if the request fails and its response does not
	// tell its cost.
	OnFailure OnFailure
	// ChargeWhen are the response statuses that the rule charges for. With any other status it
	// gives the request's hits back; nil charges for all.
	ChargeWhen *Statuses
	// Marks means that a request without room passes, with a header that names the rule.
	Marks bool
	// Delay is the longest time that a request without room waits, 1 ms to 5 minutes, and Queue how
	// many requests for a key may wait in a proxy process: 1 to 10,000. Both are 0 if requests are
	// refused at once.
	Delay Duration
	Queue int
	// Block is how long a key stays refused once the rule has refused it: 1 s to 354 d, or 0 for
	// only as long as it has no room. Extend means that requests prolong the block meanwhile. A
	// rule with Block has at most 7 limits.
	Block  Duration
	Extend bool
	// Cut means that an event stream that costs more than was reserved is ended once the counter is
	// above a limit. Usage says how to end it: with CutFails by an event that clients treat as an
	// error.
	Cut, CutFails bool
	// Upstream has a key wait as long as the upstream's responses say.
	Upstream bool
	// LimitTokens has a request ask for no more tokens than its key has left.
	LimitTokens bool
	// Ask says whether requests for streams that tell their usage only when asked are rewritten, so that
	// they ask.
	Ask Ask
	// WarnAt are the shares of a limit from which on the rule warns, in thousandths and ascending:
	// up to 8, from 1 to 1000.
	WarnAt []uint16
	// CountRejected means that rejected requests take their hits too.
	CountRejected bool
}

// BodyCost says where the JSON of a request has its cost.
type BodyCost struct {
	_ [0]func() // keeps Go from generating an equality function

	// Paths lead to numbers. The largest counts, or their sum if Sum is set. Times leads to a
	// number to multiply by, 1 if it is absent; nil for none.
	Paths []*jsonpath.Path
	Sum   bool
	Times *jsonpath.Path
	// BytesPerToken estimates the tokens of the body's text, which are added, up to PromptMost; 0 adds
	// nothing.
	BytesPerToken, PromptMost uint64
	// Default is the cost of a request that does not say it. It has no bounds.
	Default uint64
	// Unread says what a request costs if its body can't be read. Chosen reports whether the
	// configuration says so.
	Unread Unread
	Chosen bool
	// Unsized takes Unread's place for a request whose body's length is unknown, and that of its prompt
	// with it. The prompt then counts as PromptMost, unless that is UnreadDefault.
	Unsized Unread
}

// Ask says which requests are made to ask for their streams' usage.
type Ask uint8

const (
	// AskIfRead is for those whose bodies the rule reads anyway, unless it is a shadow rule.
	AskIfRead Ask = iota
	// AskNever is for none.
	AskNever
	// AskAlways is for all, and the rule reads their bodies for it.
	AskAlways
	// AskAndPass is AskAlways, and clients get the chunk with the usage.
	AskAndPass
)

// Asks reports whether the rule makes requests ask for their streams' usage. read says that it reads
// their bodies anyway.
func (r *Rule) Asks(read bool) bool {
	if r.Usage == nil || !r.Usage.asked() {
		return false
	}
	return r.Ask >= AskAlways || r.Ask == AskIfRead && read && !r.Shadow
}

// OnFailure says which failed requests keep their reservations.
type OnFailure uint8

const (
	// KeepBegun keeps those that the proxy itself has ended after an upstream may have begun.
	KeepBegun OnFailure = iota
	// GiveBack keeps none.
	GiveBack
	// Keep keeps all.
	Keep
)

// Unread says how to charge a request whose body can't be read for its cost.
type Unread uint8

const (
	// UnreadDefault charges BodyCost.Default, or the part that was read if that is more.
	UnreadDefault Unread = iota
	// UnreadMost charges Rule.CostMost, which is then a real bound.
	UnreadMost
	// UnreadRefuse refuses the request.
	UnreadRefuse
)

// RevealPlain is the Rule.Reveal that shows keys unchanged.
const RevealPlain = 255

// Usage says where a response has its cost.
type Usage struct {
	// Fields find the cost in bodies.
	Fields *usage.Fields
	// Headers together tell the cost. If the response has any of them, its body is not read.
	Headers []usage.Header
	// Ending says how to end event streams early. If Auto is set, the request's provider decides
	// instead.
	Ending usage.Ending
	Auto   bool
	preset *usage.Preset
	// Anthropic reports whether the numbers are those of Anthropic's answers.
	Anthropic bool
}

// CountsTokens reports whether the cost is surely a number of tokens: numbers of a body that has no known form may count
// anything.
func (u *Usage) CountsTokens() bool { return u != nil && u.preset != nil }

// LimitFrom lets a request set one of a rule's limits. A value that is not a number leaves the
// limit as configured.
type LimitFrom struct {
	// Limit is an index in Rule.Limits.
	Limit int
	From  Selector
	// Max is the highest limit that the request can set.
	Max uint64
	// Bursts means that the burst stays as configured. Otherwise the request sets it with the
	// limit.
	Bursts bool
}

// Overrides are other limits for some values and keys. An override of a key takes precedence.
type Overrides struct {
	Keys []KeyOverride // at most 1024
	// By selects the value that Values are about; nil if there are none.
	By     *Selector
	Values []ValueOverride // at most 1024, no value twice
}

// KeyOverride has the limits of one key. They match the rule's limits one by one, and differ from
// them only in hits and burst.
type KeyOverride struct {
	// Key has a value for each of the rule's selectors.
	Key    []string
	Limits []window.Limit
}

// ValueOverride has the limits of requests with a value. See KeyOverride.
type ValueOverride struct {
	Value  string
	Limits []window.Limit
}

// Match says which requests a rule applies to, or leaves alone: those that meet all its conditions.
// The zero value matches all.
type Match struct {
	// Path matches the path without its query, and Host the host in lower case without its port;
	// nil matches any.
	Path, Host *StringMatch
	// Methods match exactly; empty matches any.
	Methods []string
	// Conditions are about other parts of a request. Of each kind there are at most 32, each part at
	// most once.
	Conditions []Condition
	// Any are up to 64 matches of which one must hold, unless there are none.
	Any []Match
	// Not must not hold; nil for none.
	Not *Match
}

// Condition compares a part of a request, which has no defaults.
type Condition struct {
	// Of is a part of any kind but SelectPath, SelectHost, SelectInNetworks, SelectLiteral and
	// SelectResponseHeader. The values of a header that comes several times are joined by commas. A
	// body that can't be read has no values.
	Of Selector
	StringMatch
}

// StringMatch matches a string.
type StringMatch struct {
	_ [0]func() // keeps Go from generating an equality function

	Op MatchOp
	// Op compares the string with Value. For Regex it is valid for pattern.Compile. Present and
	// Absent don't use it, and neither do the next fields' operations.
	Value string
	// Texts are for In: 1 to 10,000.
	Texts map[string]struct{}
	// Networks are for InNetworks.
	Networks []clientip.Prefix
	// Above and Below are for Between: one may be nil.
	Above, Below *jsonpath.Decimal
}

// MatchOp is how a StringMatch compares.
type MatchOp uint8

const (
	// Exact matches the whole string.
	Exact MatchOp = iota
	// Prefix matches the beginning of the string.
	Prefix
	// Suffix matches the end of the string.
	Suffix
	// Regex matches the whole string against a regular expression.
	Regex
	// Present matches any string that exists.
	Present
	// Absent matches if there is no string.
	Absent
	// In matches the whole string if it is one of several.
	In
	// InNetworks matches an address in one of several networks.
	InNetworks
	// Between matches a number above one and below another.
	Between
)

// Selector selects one part of a request.
type Selector struct {
	_ [0]func() // keeps Go from generating an equality function

	Kind SelectorKind
	// Name is the name of the header, in lower case, or a pseudo-header: :authority, :method, :path
	// or :scheme. For other kinds it is the name of the query parameter or cookie, the path of the
	// property with zero bytes between its parts, the literal, the header with a claim's token, or
	// the path in the body, valid for jsonpath.Compile.
	Name string
	// Default is the value if the body has none, can't be read, or has a value of more than Longest
	// bytes. Longest is 1 to jsonpath.MaxValue. Both are for SelectBody.
	Default string
	Longest int
	// Group takes a part of the value, and is valid for pattern.CompileGroup; empty for all of it. It is
	// only for Rule.Key and Overrides.By.
	Group string
	// Claim is the path of a claim, valid for jsonpath.Compile.
	Claim string
	// Metadata is where Envoy's jwt_authn puts the payload with the claim (payload_in_metadata);
	// empty if the claim comes from a token in a header.
	Metadata string
	// Segment is the number of a path segment, from 1.
	Segment int
	// Networks are for SelectInNetworks.
	Networks []clientip.Prefix
	// IPv4Prefix and IPv6Prefix are how many bits of a client address to keep.
	IPv4Prefix, IPv6Prefix int
}

// SelectorKind is the part of the request that a Selector selects.
type SelectorKind uint8

const (
	// SelectHeader is the first value of a request header. For a cost or a limit, a header with
	// several values counts as absent.
	SelectHeader SelectorKind = iota
	// SelectClientIP is the network of the downstream address that Envoy trusts.
	SelectClientIP
	// SelectMethod is the request's method.
	SelectMethod
	// SelectPath is the path without its query.
	SelectPath
	// SelectHost is the host in lower case, without its port.
	SelectHost
	// SelectQuery is the first parameter of the query with a name, decoded.
	SelectQuery
	// SelectCookie is the first cookie with a name.
	SelectCookie
	// SelectPathSegment is a part of the path between two slashes.
	SelectPathSegment
	// SelectClaim is a claim of a JSON Web Token. Weir does not verify the token; with Metadata,
	// Envoy has verified it.
	SelectClaim
	// SelectProperty is an attribute of Envoy's.
	SelectProperty
	// SelectInNetworks is "true" or "false": whether the client's address is in one of Networks.
	SelectInNetworks
	// SelectLiteral is the same value for all requests.
	SelectLiteral
	// SelectBody is a string, a whole number or a boolean in the request's JSON body. It is only
	// for Rule.Key and Overrides.By.
	SelectBody
	// SelectResponseHeader is the first value of a response header, for CostOnResponse only.
	SelectResponseHeader
)

// digest returns a hash of a value. The fields of an object may be in any order, and the configuration's
// backend, which has secrets, is left out.
func (v *value) digest() uint64 {
	hash, text := uint64(v.kind), v.raw
	switch v.kind {
	case kindString:
		text = v.text
	case kindNumber: // 100 is 1e2
		d := parseDecimal(v.raw)
		if text, hash = d.digits, hash+uint64(d.exponent)<<8; d.negative {
			hash++
		}
	case kindArray, kindObject:
		v.each("", 0, math.MaxInt32, func(element *value) {
			switch {
			case v.kind == kindArray:
				hash = digestOf(hash+element.digest(), "")
			case v.parent != nil || element.name != "backend":
				hash += digestOf(element.digest(), element.name)
			}
		})
		text = ""
	}
	return digestOf(hash, text)
}

// digestOf continues a hash by FNV-1a, and spreads each bit over all others by the end of SplitMix64.
//
//go:noinline
func digestOf(hash uint64, text string) uint64 {
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	hash = (hash ^ hash>>30) * 0xbf58476d1ce4e5b9
	hash = (hash ^ hash>>27) * 0x94d049bb133111eb
	return hash ^ hash>>31
}
