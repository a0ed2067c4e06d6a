package wire

import (
	"cmp"
	"slices"

	"weir/window"
)

// OverridesPath is the path at which overrides are read and changed.
const OverridesPath = "/v1/overrides"

// Bounds of the overrides of a namespace.
const (
	// MaxOverrides is the most overrides and prices of a namespace, and MaxOverridesSize the most
	// bytes of their list.
	MaxOverrides     = 100_000
	MaxOverridesSize = 8 << 20
	// maxPlain is the most bytes of a list that nodes of v0.1 take.
	maxPlain = 1 << 20
	// MaxOverrideValue is the most bytes of a value in an override's key, and MaxOverrideValues the
	// most values.
	MaxOverrideValue  = 1024
	MaxOverrideValues = 16
	// MaxPart bounds the part of a list in an answer, in bytes.
	MaxPart = 64 << 10
)

// Known is the part of a push about the overrides of the namespace.
type Known struct {
	_ [0]func() // keeps Go from generating an equality function

	// Version is that of the list by which the sender's node decides; 0 if it has none.
	Version uint64
	// Unfit is how many of the list's overrides the node could not apply, because they do not fit
	// its rules.
	Unfit uint64
	// Asks requests a part of the list in the answer to a push without items and takes, if the list
	// has another version than Version: from byte From on if it has the version Of, and otherwise
	// from its beginning. If From is HasAll, the sender has all of the list Of, and a change of that will
	// do.
	Asks bool
	Of   uint64
	From uint64
	// Within, if it is not 0, makes the answer to such a push wait for a list with another version
	// than Version, and have a part from its beginning: Of and From are not sent. The backend looks
	// for it at least every Within milliseconds, and answers after [LongestPoll] at the latest.
	Within uint64
}

// HasAll is above all lengths of lists. Backends of v0.1 take it for one.
const HasAll = 1 << 40

// Past is an earlier version of a list. Its first From bytes, and its last Keep, are those of the list.
type Past struct{ Version, From, Keep uint64 }

// NextPasts returns the earlier versions of a list that replaces one with a version, of which the pasts
// are known; the most recent ones.
func NextPasts(pasts []Past, before []byte, version uint64, list []byte) []Past {
	const most = 64
	from, keep := 0, 0
	for from < len(before) && from < len(list) && before[from] == list[from] {
		from++
	}
	for keep < len(before)-from && keep < len(list)-from && before[len(before)-1-keep] == list[len(list)-1-keep] {
		keep++
	}
	var next []Past
	for _, p := range append(pasts[:len(pasts):len(pasts)], Past{version, uint64(len(before)), uint64(len(before))})[max(0, len(pasts)+1-most):] {
		p.From = min(p.From, uint64(from))
		p.Keep = min(p.Keep, uint64(keep), uint64(len(list))-p.From)
		next = append(next, p)
	}
	return next
}

// LongestPoll is the longest time that a backend delays an answer that waits for a new list, in
// nanoseconds.
const LongestPoll = int64(30e9)

// Overrides is an answer's part about the namespace's list of overrides.
type Overrides struct {
	// Known is false if the backend could not read the list. The sender then keeps its own.
	Known bool
	// Version names the list. Later lists have greater numbers, unless the store has lost its
	// memory. It is 0 if there has never been a list.
	Version uint64
	// Size is the list's length in bytes. Part has the bytes from From on; it is empty if they were
	// not asked for.
	Size, From uint64
	Part       []byte
	// Of is not 0 if Part is a change of the list of this version: the first From bytes stay, and the
	// last Keep.
	Of, Keep uint64
}

// Mode says what a rule does, if an override is of a whole rule.
type Mode uint8

const (
	// OfKey means that the override is of a single key.
	OfKey Mode = iota
	// Configured leaves it to the configuration.
	Configured
	// Enforce is a mode of configurations.
	Enforce
	// Shadow is the other one.
	Shadow
	// Off lets all requests pass uncounted.
	Off
	// OfKeys is no mode: the override is of the keys that its values describe, see [PatternOf].
	OfKeys
)

// IsWhole reports whether an override with the mode is of a whole rule.
func (m Mode) IsWhole() bool { return m != OfKey && m != OfKeys }

// ModeNames are the names of the modes of a rule, by mode.
var ModeNames = [...]string{Configured: "configured", Enforce: "enforce", Shadow: "shadow", Off: "off", OfKeys: ""}

// AllRules stands for all rules of the namespace, in the place of a rule's name. It goes before what
// a single rule is set to.
const AllRules = "*"

// Override gives one key of a rule, or several, or the whole rule, other limits. Without limits and mode it is a
// notice about the key's counter.
type Override struct {
	Rule string
	// Mode says which. For a whole rule there are no Values, and there may be no Limits: those of the
	// configuration stay.
	Mode Mode
	// Values are the values of the rule's key, in the form in which people write them; for OfKeys
	// with the kind of each before it.
	Values []string
	Limits []OverrideLimit
	// Notice is used if there are no limits.
	Notice Notice
	// Until is the time from which the override no longer applies, in milliseconds of Unix time; 0
	// for never.
	Until uint64
}

// Notice says when someone changed a key's counter at the backend, in milliseconds of the backend's
// Unix time, so that nodes drop their state of it. At least one of the times is not 0.
type Notice struct {
	// Reset is when the counter was last emptied: leases as old as that have no counted hits any
	// more. Granted is when hits were last given back.
	Reset, Granted uint64
}

// Newest returns the later of the two times.
func (n *Notice) Newest() uint64 { return max(n.Reset, n.Granted) }

// IsNotice reports whether the override has a notice in place of limits.
func (o *Override) IsNotice() bool { return len(o.Limits) == 0 && o.Mode == OfKey }

// OverrideLimit replaces the rule's limit with the same window.
type OverrideLimit struct {
	Max uint64
	// Burst is 0 if it equals Max, or the kind has none.
	Burst       uint64
	WidthMillis uint64
}

// A mode is added to the first limit, in this unit, which is above all limits. Nodes and backends of
// v0.1.0 read that, and no rule of theirs fits it. Without limits there is one whose burst says so.
const (
	modeUnit = window.MaxLimit + 1
	noLimits = MaxHits
)

// AppendOverride appends an override to a list.
func AppendOverride(dst []byte, o *Override) []byte {
	dst = appendUvarint(appendText(dst, o.Rule), uint64(len(o.Values)))
	for _, v := range o.Values {
		dst = appendText(dst, v)
	}
	mode := uint64(o.Mode) * modeUnit
	if mode != 0 && len(o.Limits) == 0 {
		dst = appendUvarints(append(dst, 1), mode, noLimits, 1)
	} else {
		dst = appendUvarint(dst, uint64(len(o.Limits)))
	}
	for _, l := range o.Limits {
		dst = appendUvarints(dst, mode+l.Max, l.Burst, l.WidthMillis)
		mode = 0
	}
	if o.IsNotice() {
		dst = appendUvarints(dst, o.Notice.Reset, o.Notice.Granted)
	}
	return appendUvarint(dst, o.Until)
}

// OverrideReader reads a list of overrides and prices without allocating. Its fields are those of the
// last part read. They are valid until the next, and share the list's memory.
type OverrideReader struct {
	Rule   []byte // empty for prices
	Mode   Mode
	Values [][]byte
	Limits []OverrideLimit
	Notice Notice
	Until  uint64
	// PriceList, Model and Prices are those of a [Price].
	PriceList, Model []byte
	Prices           []PriceOfKind

	r      reader
	values [MaxOverrideValues][]byte
	limits [MaxLimits]OverrideLimit
	prices [maxPrices]PriceOfKind
}

// Reset starts reading a list at the byte at, where an override begins.
func (o *OverrideReader) Reset(list []byte, at int) { o.r = reader{data: list, pos: at} }

// At returns the offset of the next override in the list.
func (o *OverrideReader) At() int { return o.r.pos }

// Next reads the next override, or the next prices, and reports whether there was one.
func (o *OverrideReader) Next() bool {
	r := &o.r
	if r.err != nil || r.pos == len(r.data) {
		return false
	}
	if o.Rule = r.counted(MaxName); len(o.Rule) == 0 {
		o.price()
		return r.err == nil
	}
	values := r.most(r.uvarint(), MaxOverrideValues)
	for i := range values {
		o.values[i] = r.counted(MaxOverrideValue)
	}
	limits := r.most(r.uvarint(), MaxLimits)
	o.Notice = Notice{}
	if r.err == nil && limits == 0 {
		if o.Notice.Reset, o.Notice.Granted = r.amount(), r.amount(); r.err == nil && o.Notice.Newest() == 0 {
			r.fail("want at least one limit, or a notice")
		}
	}
	for i := range limits {
		o.limits[i] = OverrideLimit{Max: r.amount(), Burst: r.amount(), WidthMillis: r.width()}
	}
	o.Until = r.amount()
	o.Values, o.Limits = o.values[:values], o.limits[:limits]
	o.Mode = OfKey
	if limits > 0 && o.limits[0].Max/modeUnit <= uint64(OfKeys) {
		first := &o.limits[0]
		if o.Mode, first.Max = Mode(first.Max/modeUnit), first.Max%modeUnit; o.Mode.IsWhole() && first.Burst == noLimits {
			o.Limits = o.Limits[:0]
		}
	}
	return r.err == nil
}

// Err returns what was wrong with the list as far as it was read.
func (o *OverrideReader) Err() error { return o.r.err }

// Values of an answer's byte about overrides.
const (
	overridesUnknown = iota
	overridesVersion
	overridesPart
	overridesChange
)

// Values of a push's byte about overrides.
const (
	asksNothing = iota
	asksPart
	asksToWait
)

func appendKnown(dst []byte, k *Known) []byte {
	dst = appendUvarints(dst, k.Version, k.Unfit)
	switch {
	case !k.Asks:
		return append(dst, asksNothing)
	case k.Within > 0:
		return appendUvarint(append(dst, asksToWait), k.Within)
	}
	return appendUvarints(append(dst, asksPart), k.Of, k.From)
}

func (r *reader) known() (k Known) {
	k.Version, k.Unfit = r.uvarint(), r.uvarint()
	switch r.byte() {
	case asksNothing:
	case asksPart:
		k.Asks, k.Of, k.From = true, r.uvarint(), min(r.uvarint(), HasAll)
	case asksToWait:
		k.Asks, k.Within = true, r.uvarint()
	default:
		r.fail("want a flag that asks for overrides or does not")
	}
	return k
}

func appendOverrides(dst []byte, o *Overrides) []byte {
	switch {
	case !o.Known:
		return append(dst, overridesUnknown)
	case len(o.Part) == 0 && o.Size == 0:
		return appendUvarint(append(dst, overridesVersion), o.Version)
	case o.Of != 0:
		return appendCounted(appendUvarints(append(dst, overridesChange), o.Version, o.Size, o.From, o.Of, o.Keep), o.Part)
	}
	return appendCounted(appendUvarints(append(dst, overridesPart), o.Version, o.Size, o.From), o.Part)
}

// overrides reads an answer's part about overrides. It shares the message's memory.
func (r *reader) overrides() (o Overrides) {
	what := r.byte()
	if r.err != nil || what == overridesUnknown {
		return o
	}
	o.Known, o.Version = true, r.uvarint()
	switch what {
	case overridesVersion:
	case overridesPart, overridesChange:
		o.Size, o.From = r.uvarint(), r.uvarint()
		if what == overridesChange {
			o.Of, o.Keep = r.uvarint(), r.uvarint()
		}
		length := r.uvarint()
		if r.err == nil && (o.Size == 0 || o.Size > MaxOverridesSize || o.From > o.Size || length > o.Size-o.From || length > MaxPart ||
			what == overridesChange && o.Keep != o.Size-o.From-length) {
			r.fail("want a part of a list of overrides")
			return o
		}
		o.Part = r.bytes(int(length))
	default:
		r.fail("want a known value for overrides")
	}
	return o
}

// OverridesFor returns an answer's part about a list, its version and earlier ones. Only pushes without items
// and takes get a part of the list, because only their answers have room for it. A node of v0.1 gets none of
// a list that is too long for it.
func OverridesFor(p *Push, list []byte, version uint64, pasts ...Past) (o Overrides) {
	o.Known, o.Version = true, version
	k := &p.Known
	if !k.Asks || len(p.Items)+len(p.Takes) > 0 || len(list) == 0 || k.Version == version {
		return o
	}
	o.Size = uint64(len(list))
	switch {
	case k.Within > 0 && o.Size > MaxPart, k.Within == 0 && k.From != HasAll && (k.Of != version || k.From == 0) && o.Size > maxPlain:
		o.Size, o.From = maxPlain, maxPlain // the sender asks for it, if it can
		return o
	case k.From == HasAll:
		for _, past := range pasts {
			if past.Version == k.Of && k.Of != 0 && o.Size-past.From-past.Keep <= MaxPart {
				o.Of, o.From, o.Keep = k.Of, past.From, past.Keep
				o.Part = list[o.From : o.Size-o.Keep]
				return o
			}
		}
	}
	if k.Of == version {
		o.From = min(k.From, o.Size)
	}
	o.Part = list[o.From:min(o.From+MaxPart, o.Size)]
	return o
}

// List encodes overrides, which must be in the order of [Override.Compare], and after them prices.
func List(overrides []Override, prices ...Price) (list []byte) {
	for i := range overrides {
		list = AppendOverride(list, &overrides[i])
	}
	for i := range prices {
		list = appendPrice(list, &prices[i])
	}
	return list
}

// DecodeList reads a whole list. The error wraps [ErrMalformed].
func DecodeList(list []byte) (overrides []Override, prices []Price, err error) {
	var r OverrideReader
	for r.Reset(list, 0); r.Next(); {
		if len(r.Rule) == 0 {
			prices = append(prices, Price{List: string(r.PriceList), Model: string(r.Model), Kinds: slices.Clone(r.Prices)})
			continue
		}
		o := Override{Rule: string(r.Rule), Mode: r.Mode, Limits: append([]OverrideLimit(nil), r.Limits...), Notice: r.Notice, Until: r.Until}
		for _, v := range r.Values {
			o.Values = append(o.Values, string(v))
		}
		overrides = append(overrides, o)
	}
	return overrides, prices, r.Err()
}

// Compare orders overrides by rule and values, and puts whole rules before keys, limits before
// notices, and many keys last. It returns 0 for two overrides of the same rule or key if both have limits or both are
// notices.
func (o *Override) Compare(other *Override) int {
	return cmp.Or(cmp.Compare(o.Rule, other.Rule), slices.Compare(o.Values, other.Values), cmp.Compare(o.kind(), other.kind()))
}

// kind is the order of overrides with the same rule and values.
func (o *Override) kind() int {
	switch {
	case o.Mode.IsWhole():
		return 0
	case o.Mode == OfKeys:
		return 3
	case !o.IsNotice():
		return 1
	}
	return 2
}

// PricesPath is the path at which prices are read and changed.
const PricesPath = "/v1/prices"

// maxPrices is the most kinds of tokens.
const maxPrices = 8

// Price has the prices of a model's tokens in a price list. It is part of the list of overrides,
// behind a byte 0, which is no length of a rule's name.
type Price struct {
	List, Model string
	// Kinds are the prices that differ from those of other kinds, in ascending order.
	Kinds []PriceOfKind
}

// PriceOfKind is the price of a token of one kind, in millionths.
type PriceOfKind struct{ Kind, Millionths uint64 }

// Compare orders prices by list and model.
func (p *Price) Compare(other *Price) int {
	return cmp.Or(cmp.Compare(p.List, other.List), cmp.Compare(p.Model, other.Model))
}

func appendPrice(dst []byte, p *Price) []byte {
	dst = appendText(appendText(append(dst, 0), p.List), p.Model)
	dst = appendUvarint(dst, uint64(len(p.Kinds)))
	for _, k := range p.Kinds {
		dst = appendUvarints(dst, k.Kind, k.Millionths)
	}
	return dst
}

// price reads prices behind their mark.
func (o *OverrideReader) price() {
	r := &o.r
	o.PriceList, o.Model = r.counted(MaxName), r.counted(MaxUsedModel)
	o.Prices = o.prices[:r.most(r.uvarint(), maxPrices)]
	for i := range o.Prices {
		o.Prices[i] = PriceOfKind{Kind: r.amount(), Millionths: r.amount()}
	}
}
