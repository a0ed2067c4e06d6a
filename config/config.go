// Package config turns the plugin's JSON configuration into what the filter runs on.
//
// [Parse] checks a whole document and reports every mistake in it, each with the path of the value
// and what would be right. A [Config] that it returns needs no further checks. The package is part
// of the plugin. For the module's size it does without fmt, encoding/json, regexp and net/netip.
package config

import (
	"weir/internal/clientip"
	"weir/internal/fields"
	"weir/internal/jsonpath"
	"weir/internal/usage"
	"weir/window"
)

// Format numbers the grammar of configurations. It changes when a document that this one accepts is
// refused, or means something else.
const Format = 1

// Config is a checked configuration. It is not modified after Parse and may be read concurrently.
type Config struct {
	// Namespace isolates counters, in the proxy and in the backend: 1 to 64 of A-Za-z0-9._-.
	Namespace string
	// Backend is the zero value if no rule synchronises.
	Backend Backend
	// OnBackendFailure says what decides while the backend can't be reached.
	OnBackendFailure FailureMode
	// Capacity is how many live counters the table in shared data has room for: 1 to 2^24.
	Capacity int
	// Prices are lists of what the tokens of models cost, at most 16.
	Prices []*Prices
	// Rules are in the order of the configuration, 1 to 256.
	Rules []Rule
	// ResetUnit is the unit of X-RateLimit-Reset.
	ResetUnit fields.ResetUnit
	// HeaderNames are other names for the headers that tell of limits, each name at most once.
	HeaderNames []fields.Name
	// RetryAfterJitter is the share, in thousandths, by which Retry-After is longer at most than it need
	// be: 1 to 999, or 0 for never.
	RetryAfterJitter uint16
}

// Backend says how to reach the counter backend.
type Backend struct {
	// Cluster is the name of Envoy's cluster: 1 to 512 visible ASCII characters, as are the next
	// two.
	Cluster string
	// Authority is the :authority of callouts: by default the cluster, or of Istio's names the host
	// in them.
	Authority string
	// Token is sent as a bearer token; empty for none; up to 8192 characters.
	Token string
	// KeySecret keys the hashes by which the backend knows keys; empty for none, or MinKeySecret to
	// 8192 characters.
	KeySecret string
	// Timeout bounds one callout; whole milliseconds, 1 ms to 1 minute.
	Timeout Duration
}

// MinKeySecret is the length of the shortest KeySecret: a shorter one can be guessed.
const MinKeySecret = 16

// FailureMode names the way of deciding while the backend can't be reached.
type FailureMode uint8

const (
	// FailLocal decides from the proxy's own counters, which are kept and pushed later.
	FailLocal FailureMode = iota
	// FailAllow lets every request pass, uncounted.
	FailAllow
	// FailDeny rejects every request that a rule matches.
	FailDeny
)

// Name is the mode as a configuration has it.
func (f FailureMode) Name() string { return failures[f] }

// Response answers a rejected request.
type Response struct {
	// Status is the HTTP status, 200 to 599.
	Status int
	// Body may be empty, and is if the status has none (204, 205, 304). ContentType is never empty,
	// and sent only with a body.
	Body        string
	ContentType string
	// Headers are up to 32 further headers, sorted by name, names in lower case and unique.
	Headers []Header
	// GRPCStatus and GRPCMessage go to requests of content type application/grpc, in place of
	// Status and Body. GRPCStatus is 0 to 16. GRPCMessage may be empty.
	GRPCStatus  int
	GRPCMessage string
	// Preset has the provider's own clients understand the refusal, in place of Status, Body and
	// ContentType; fields.NoProvider for none.
	Preset fields.Provider
}

// Header is a name and a value.
type Header struct{ Name, Value string }

// Rule limits the requests that it matches.
type Rule struct {
	// Name is unique in the configuration: 1 to 64 of A-Za-z0-9_-.
	Name  string
	Match Match
	// Except are the requests that the rule leaves alone: those that any of them matches. At most
	// 64.
	Except []Exception
	// SyncRate is the interval of synchronisation with the backend, in whole milliseconds up to a
	// day. If it is 0, the backend decides every request. If it is negative, this proxy counts
	// alone.
	SyncRate Duration
	// Shadow reports whether the rule only measures: it rejects nothing and sets no header.
	Shadow bool
	// Response answers a request that this rule is the first to reject.
	Response *Response
	// Headers are the sets of response headers that tell of the rule.
	Headers fields.Set
	// Key selects the parts of a request that tell counters apart; empty for one counter for all.
	// At most 16.
	Key []Selector
	// Limits must all have room for a request to pass; 1 to 8, no two of the same shape.
	Limits []window.Limit
	// LimitFrom are the limits whose hits a request may say, each at most once.
	LimitFrom []LimitFrom
	// Overrides are other limits for some requests and keys. They go before LimitFrom.
	Overrides Overrides
	// Cost is how many hits a request takes, unless CostFrom is set: then that part of the request
	// says it. Its number counts as CostLeast at least and as CostMost at most, which is 1 or more,
	// and the largest uint64 for no bound. Without CostFrom both are 0.
	Cost                uint64
	CostFrom            *Selector
	CostLeast, CostMost uint64
	// CostFromBody is where the request's body says the cost, in place of Cost and CostFrom; nil if it
	// does not. CostLeast and CostMost bound that.
	CostFromBody *BodyCost
	// CostOnResponse is the part of the response, or of the request, that says how many hits are
	// counted when the response is there. It is nil for none.
	CostOnResponse *Selector
	// Reveal is how many characters of a key's values people may see: 1 to 64, RevealPlain for all, and 0
	// for its hash alone.
	Reveal uint8
	// Usage finds in the response's body how much it has cost, in place of CostOnResponse. It is
	// nil for none.
	Usage *Usage
	// Prices are those of the rule's tokens if it counts money; nil if it counts tokens. Then Usage
	// finds how many of each kind there were. Cost and its like are tokens of an answer if Reserve
	// is set.
	Prices *Prices
	// Reserve reports whether the cost is only taken until the response has told what it has cost,
	// which takes its place. Else that is taken besides.
	Reserve bool
	// Hold is for how long a request may hold the places of a rule whose only limit is of requests in
	// flight: 1 s to 366 d. It is 0 for any other rule.
	Hold Duration
	// MostPerRequest is the most that a request may reserve, whatever room there is; 0 for no such bound.
	MostPerRequest uint64
	// KeepOnFailure reports whether what a request reserved stays taken if it fails, and its response
	// does not tell what it has cost.
	KeepOnFailure bool
	// ChargeWhen are the statuses of the responses that the rule charges: with any other status the hits
	// of the request go back. It is nil if the rule charges all responses.
	ChargeWhen *Statuses
	// Marks reports whether a request passes though the rule has no room for it, with a header that
	// names the rule.
	Marks bool
	// Delay is for how long a request waits at most that the rule has no room for, 1 ms to 5 minutes, and
	// Queue how many of a key do in a proxy process: 1 to 10,000. They are 0 if it is refused at once.
	Delay Duration
	Queue int
	// Block is for how long a key stays refused that the rule has refused: 1 s to 366 d, or 0 for no
	// longer than it has no room. Extend reports whether requests prolong that meanwhile. Then there are
	// at most 7 limits.
	Block  Duration
	Extend bool
	// Cut reports whether an event stream that costs more than was reserved is ended when the counter
	// is above a limit. Then Usage says how: with an event that clients take for an error if CutFails is set.
	Cut, CutFails bool
	// WarnAt are the shares of a limit, in thousandths and ascending, from which on the rule warns: up to 8, of 1
	// to 1000.
	WarnAt []uint16
	// CountRejected reports whether the hits of requests that the rule rejects are counted too.
	CountRejected bool
}

// BodyCost says where a request's JSON has what it costs.
type BodyCost struct {
	_ [0]func() // or else Go makes a function that compares values

	// Paths lead to numbers, of which the largest counts, or their sum if Sum is set. Times leads
	// to a number that this is multiplied by, 1 where it is not there; nil for none.
	Paths []*jsonpath.Path
	Sum   bool
	Times *jsonpath.Path
	// BytesPerToken estimates what a request's body costs besides, which goes into a model; 0 for nothing.
	BytesPerToken uint64
	// Default is the cost of a request that does not say it. No bounds apply.
	Default uint64
	// Unread says what a request costs whose body can't be read. Chosen reports whether the configuration
	// says it.
	Unread Unread
	Chosen bool
}

// Unread says how a request fares whose body can't be read for its cost.
type Unread uint8

const (
	// UnreadDefault has it cost BodyCost.Default, or what was read if that is more.
	UnreadDefault Unread = iota
	// UnreadMost has it cost Rule.CostMost, which is a bound then.
	UnreadMost
	// UnreadRefuse has it refused.
	UnreadRefuse
)

// RevealPlain is the Rule.Reveal of keys that are shown as they are.
const RevealPlain = 255

// Usage says where a response tells what it has cost.
type Usage struct {
	// Fields are of bodies.
	Fields *usage.Fields
	// Headers tell it together, if the response has any of them. Then its body is not read.
	Headers []usage.Header
	// Ending is how event streams can be ended, unless Auto says that it is that of the provider that a
	// request is for.
	Ending usage.Ending
	Auto   bool
	preset *usage.Preset
	// Anthropic reports whether they are those of Anthropic.
	Anthropic bool
}

// LimitFrom says where a request has the hits of one of a rule's limits. A value that is no number
// leaves the limit as it is.
type LimitFrom struct {
	// Limit is the index in Rule.Limits.
	Limit int
	From  Selector
	// Max bounds what the request says.
	Max uint64
	// Bursts reports whether the burst is that of the limit, whatever the request says. Else the
	// request says it.
	Bursts bool
}

// Overrides are other limits for some. An override of the key goes first.
type Overrides struct {
	Keys []KeyOverride // at most 1024
	// By selects the value that Values are for; nil if there are none.
	By     *Selector
	Values []ValueOverride // at most 1024, no value twice
}

// KeyOverride has the limits of one key: the same number of limits as the rule has, which differ in
// hits and burst.
type KeyOverride struct {
	// Key has a value for each selector of the rule's.
	Key    []string
	Limits []window.Limit
}

// ValueOverride has the limits of requests with one value, as KeyOverride has.
type ValueOverride struct {
	Value  string
	Limits []window.Limit
}

// Exception is requests that a rule leaves alone: those from some networks, or if there are none,
// those that Match matches.
type Exception struct {
	Match    Match
	Networks []clientip.Prefix
}

// Match says which requests a rule applies to; its zero value matches all.
type Match struct {
	// Path is matched against the path without its query, and Host against the host in lower case
	// without its port; nil for any.
	Path, Host *StringMatch
	// Headers are matched against all values of headers, with commas between: at most 32, all of which
	// must match.
	Headers []HeaderMatch
	// Body are matched against strings, whole numbers and booleans of the request's JSON: at most
	// 32, all of which must match. A body that cannot be read has none.
	Body []BodyMatch
	// Methods are matched exactly; empty for any.
	Methods []string
}

// HeaderMatch compares a request header.
type HeaderMatch struct {
	// Name is in lower case, and unique in a Match.
	Name string
	StringMatch
}

// BodyMatch compares a part of a request's body.
type BodyMatch struct {
	// Path is such that jsonpath.Compile takes it, and unique in a Match.
	Path string
	StringMatch
}

// StringMatch compares one string.
type StringMatch struct {
	_ [0]func() // or else Go makes a function that compares values

	Op MatchOp
	// Value is compared with the string: of Regex an expression that pattern.Compile takes. It is
	// unused by Present and Absent.
	Value string
}

// MatchOp is how a StringMatch compares.
type MatchOp uint8

const (
	// Exact wants the whole string.
	Exact MatchOp = iota
	// Prefix wants the string to begin with the value.
	Prefix
	// Suffix wants the string to end with the value.
	Suffix
	// Regex wants the whole string to match a regular expression.
	Regex
	// Present wants the string to be there, with any value.
	Present
	// Absent wants the string not to be there.
	Absent
)

// Selector selects one part of a request.
type Selector struct {
	_ [0]func() // or else Go makes a function that compares values

	Kind SelectorKind
	// Name is the header's, in lower case; one of :authority, :method, :path and :scheme for a
	// pseudo-header. It is the name of the query's parameter or of the cookie, the path of the
	// property with zero bytes between its parts, the literal itself, for a claim the header that
	// the token is in, and of a body the path, which jsonpath.Compile takes.
	Name string
	// Default is the value of a request whose body does not tell any, or cannot be read, or tells a
	// value of more than Longest bytes, which is 1 to jsonpath.MaxValue. They are of SelectBody.
	Default string
	Longest int
	// Claim is the path of a claim, which jsonpath.Compile takes.
	Claim string
	// Metadata is where Envoy's jwt_authn leaves the payload that a claim is taken of, its
	// payload_in_metadata; empty for a claim of a header's token.
	Metadata string
	// Segment is the number of a path's segment, from 1.
	Segment int
	// Networks are those of SelectInNetworks.
	Networks []clientip.Prefix
	// IPv4Prefix and IPv6Prefix are the bits of a client address that count.
	IPv4Prefix, IPv6Prefix int
}

// SelectorKind is the part of the request that a Selector selects.
type SelectorKind uint8

const (
	// SelectHeader is the first value of a request header. If it says a cost or limits, it counts
	// only if the header has no other value.
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
	// SelectPathSegment is the part between two slashes of the path.
	SelectPathSegment
	// SelectClaim is a claim of a JSON Web Token, which nobody verifies here: Envoy has, if Metadata says
	// where it leaves the payload.
	SelectClaim
	// SelectProperty is an attribute of Envoy's.
	SelectProperty
	// SelectInNetworks is true or false: whether the client's address is in one of some networks.
	SelectInNetworks
	// SelectLiteral is the same for all requests.
	SelectLiteral
	// SelectBody is a string, a whole number or a boolean of the request's body, if that is JSON.
	// It is for Rule.Key and Overrides.By only.
	SelectBody
	// SelectResponseHeader is the first value of a response header, for CostOnResponse only.
	SelectResponseHeader
)
