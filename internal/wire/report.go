package wire

import (
	"encoding/binary"
	"math"
	"slices"
)

// reportVersion begins a report, and releasedVersion a report of v0.1.0. The latter has no held
// places, no digest of rules, no leases, and no steps of warnings, and says how many rules follow.
const (
	releasedVersion = 0x73
	reportVersion   = 0x74
)

// Bounds of a report.
const (
	// MaxReport bounds its size in bytes.
	MaxReport = 64 << 10
	// MaxReportRules, MaxReportKeys and MaxReportSample bound the rules, the keys of one list, and
	// the keys of a sample.
	MaxReportRules  = 256
	MaxReportKeys   = 64
	MaxReportSample = 256
	// MaxReportWarnings is the most warnings in a report.
	MaxReportWarnings = 64
	// MaxReportHeld is the most keys with held places in a report.
	MaxReportHeld = 64
	// MaxReportWindows is the most windows of a sample for each key.
	MaxReportWindows = 16
	// MaxReportValues is the most values of a name, and MaxReportName the most bytes of a name.
	MaxReportValues = 16
	MaxReportName   = 128
)

// Report has a sender's figures about the keys of its rules. It is posted like a push. A lost
// report does no harm, since the next report has the same figures.
type Report struct {
	Namespace string
	// Node and Sender are those of pushes.
	Node, Sender uint64
	// AtNanos is when it was made, by the backend's clock if the sender knows it.
	AtNanos uint64
	// Warnings are about keys that have neared a limit since the last report but one.
	Warnings []Warning
	// Held are keys with places that the sender's requests hold.
	Held []HeldKey
	// Digest names what the sender would tell of its rules; 0 if its version tells nothing. Told is
	// that, as [AppendTold] makes it, if the backend has asked for it.
	Digest uint64
	Told   []byte
	Rules  []RuleReport
}

// HeldKey says how many places of a key requests hold, and since when the oldest is held, by the
// backend's clock.
type HeldKey struct {
	ID                 ID
	Places, SinceNanos uint64
}

// Warning is about a key that has used so much of a limit that its rule warns.
type Warning struct {
	Rule string
	ID   ID
	// Limit is the limit's index in the rule, and WidthMillis its window.
	Limit       uint8
	WidthMillis uint64
	// EndMillis is the end of the window in which the key was near the limit, in Unix time. It is 0
	// if hits leave the limit one by one.
	EndMillis uint64
	// Used is how much of Quota the key had used.
	Used, Quota uint64
	// At is the share of Quota, in thousandths, that the key has reached, if the rule warns at
	// several shares.
	At uint64
	// Name is as in a ReportKey.
	Name []byte
}

// RuleReport has the figures of a rule for the last SpanMillis.
type RuleReport struct {
	Name       string
	Shadow     bool
	SpanMillis uint64
	// SyncMillis is how long hits that have passed may wait for their push; 0 if the rule is not pushed, or
	// the sender does not say.
	SyncMillis uint64
	Amounts    // exact
	// Recent is the part of these in the last RecentMillis; 0 if the sender does not say.
	RecentMillis uint64
	Recent       Amounts
	// Every means that a random 1 in Every requests was recorded for Used and Refused.
	Every uint64
	// Used are the keys that asked for most hits, and Refused the keys that were refused most.
	Used, Refused KeyList
	// Limits are the rule's limits, and Sample is of its keys. Both are empty unless it is a shadow
	// rule.
	Limits []ReportLimit
	Sample Sample
}

// Amounts are the requests and hits that were asked for, and those of them that were refused.
type Amounts struct{ Requests, Hits, RefusedRequests, RefusedHits uint64 }

// KeyList is a list of keys, by descending hits.
type KeyList struct {
	// Floor is the most hits of a key that is not in the list.
	Floor uint64
	Keys  []ReportKey
}

// ReportKey is a key in a list.
type ReportKey struct {
	ID ID
	// Hits are at least the key's, and at most Error more.
	Hits, Error uint64
	// Recent is the part of Hits, as far as known, in the last RecentMillis of the rule.
	Recent uint64
	// Use is the used share of the key's tightest limit, in thousandths.
	Use uint64
	// Leased is how many hits of the sender's process were leased and not used when it was last seen, and
	// Pending how many had passed that the sender has told nobody yet, as far as it knows.
	Leased, Pending uint64
	// Name is empty unless the rule reveals it: a list of values made by [AppendValue].
	Name []byte
}

// ReportLimit is a limit of a shadow rule.
type ReportLimit struct{ Max, WidthMillis uint64 }

// Sample has all recent keys whose hashes are at most Threshold.
type Sample struct {
	// SinceNanos is the time from which on their hits are completely known.
	Threshold, SinceNanos uint64
	Keys                  []SampledKey
	// Busy are, for each of the rule's limits, the keys with most hits among those with greater
	// hashes. It is empty if there are none, or if the sender's version does not report them.
	Busy []BusyWindows
}

// SampledKey is a key in a sample.
type SampledKey struct {
	Hash    uint64
	Refused bool
	// Asked has the hits that it asked for in the windows of each of the rule's limits.
	Asked []AskedWindows
}

// AskedWindows are consecutive windows of the clock: Hits[i] were asked for in window Newest-i.
type AskedWindows struct {
	Newest uint64
	Hits   []uint32
}

// AppendValue appends a value to a name. cut marks a value that is only a beginning.
func AppendValue(name []byte, value []byte, cut bool) []byte {
	head := uint64(len(value)) << 1
	if cut {
		head |= 1
	}
	return append(appendUvarint(name, head), value...)
}

// NextValue returns the first value of a name, and the rest.
func NextValue(name []byte) (value []byte, cut bool, rest []byte, ok bool) {
	r := reader{data: name}
	head := r.uvarint()
	if r.err != nil || head>>1 > MaxReportName {
		return nil, false, nil, false
	}
	value = r.bytes(int(head >> 1))
	return value, head&1 != 0, name[r.pos:], r.err == nil
}

// IsReport reports whether a message is a report.
func IsReport(b []byte) bool {
	return len(b) > 0 && (b[0] == reportVersion || b[0] == releasedVersion)
}

// AppendReportHeader appends the part of a report before its rules. The caller then appends these
// with [AppendRuleReport], and [AppendEnd].
func AppendReportHeader(dst []byte, r *Report) []byte {
	dst = appendText(append(dst, reportVersion), r.Namespace) // its length takes a byte
	for _, n := range [...]uint64{r.Node, r.Sender, r.AtNanos, r.Digest} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	dst = append(dst, byte(len(r.Warnings)))
	for i := range r.Warnings {
		w := &r.Warnings[i]
		dst = append(append(appendText(dst, w.Rule), w.ID[:]...), w.Limit)
		dst = appendCounted(appendUvarints(dst, w.WidthMillis, w.EndMillis, w.Used, w.Quota), w.Name)
		dst = appendUvarint(dst, w.At)
	}
	dst = append(dst, byte(len(r.Held)))
	for i := range r.Held {
		h := &r.Held[i]
		dst = append(dst, h.ID[:]...)
		dst = binary.LittleEndian.AppendUint64(appendUvarint(dst, h.Places), h.SinceNanos)
	}
	return appendCounted(dst, r.Told)
}

// AppendReport appends a whole report.
func AppendReport(dst []byte, r *Report) []byte {
	dst = AppendReportHeader(dst, r)
	for i := range r.Rules {
		dst = AppendRuleReport(dst, &r.Rules[i])
	}
	return AppendEnd(dst)
}

// AppendRuleReport appends one rule of a report.
func AppendRuleReport(dst []byte, r *RuleReport) []byte {
	dst = appendUvarint(appendAmounts(appendUvarint(appendText(dst, r.Name), r.SpanMillis), &r.Amounts), r.Every)
	dst = appendAmounts(appendUvarints(dst, r.SyncMillis, r.RecentMillis), &r.Recent)
	dst = appendKeys(appendKeys(dst, &r.Used), &r.Refused)
	if !r.Shadow {
		return append(dst, 0)
	}
	dst = append(dst, 1, byte(len(r.Limits)))
	for _, l := range r.Limits {
		dst = appendUvarints(dst, l.Max, l.WidthMillis)
	}
	dst = binary.LittleEndian.AppendUint64(dst, r.Sample.Threshold)
	dst = binary.LittleEndian.AppendUint64(dst, r.Sample.SinceNanos)
	keys := r.Sample.pack()
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(keys)))
	for i := range keys {
		k := &keys[i]
		dst = binary.LittleEndian.AppendUint64(dst, k.Hash)
		refused := byte(0)
		if k.Refused {
			refused = 1
		}
		dst = append(dst, refused)
		for j := range k.Asked {
			a := &k.Asked[j]
			dst = append(appendUvarint(dst, a.Newest), byte(len(a.Hits)))
			for _, h := range a.Hits {
				dst = appendUvarint(dst, uint64(h))
			}
		}
	}
	return dst
}

func appendAmounts(dst []byte, a *Amounts) []byte {
	return appendUvarints(dst, a.Requests, a.Hits, a.RefusedRequests, a.RefusedHits)
}

func appendKeys(dst []byte, l *KeyList) []byte {
	dst = append(appendUvarint(dst, l.Floor), byte(len(l.Keys)))
	for i := range l.Keys {
		k := &l.Keys[i]
		dst = appendUvarints(append(dst, k.ID[:]...), k.Hits, k.Error, k.Recent, k.Use, k.Leased, k.Pending)
		dst = appendCounted(dst, k.Name)
	}
	return dst
}

// DecodeReport reads a report, and checks its bounds. The result shares memory with b. Any error
// wraps [ErrMalformed].
func DecodeReport(b []byte) (*Report, error) {
	r := reader{data: b}
	released := r.byte() == releasedVersion
	if !IsReport(b) {
		r.fail("not a report")
	}
	if len(b) > MaxReport {
		r.fail("want a report of at most 64 KiB")
	}
	p := &Report{Namespace: r.namespace(), Node: r.uint64(), Sender: r.uint64(), AtNanos: r.uint64()}
	if !released {
		p.Digest = r.uint64()
	}
	more := r.more
	if released {
		count := r.count()
		more = func() bool { return r.err == nil && len(p.Rules) < count }
	}
	p.Warnings = several(&r, r.few(MaxReportWarnings), func() Warning { return r.warning(released) })
	if !released {
		p.Held = several(&r, r.few(MaxReportHeld), r.heldKey)
		if told := r.counted(MaxTold); len(told) > 0 {
			p.Told = told
		}
	}
	for more() {
		rule := r.ruleReport(released)
		r.most(uint64(len(p.Rules)+1), MaxReportRules)
		if slices.ContainsFunc(p.Rules, func(other RuleReport) bool { return other.Name == rule.Name }) {
			r.fail("want each rule once")
		}
		p.Rules = append(p.Rules, rule)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return p, nil
}

// few reads a number of at most most in a byte.
func (r *reader) few(most int) int { return r.most(uint64(r.byte()), most) }

func (r *reader) heldKey() HeldKey {
	return HeldKey{ID: r.id(), Places: r.amount(), SinceNanos: r.uint64()}
}

func (r *reader) warning(released bool) Warning {
	w := Warning{
		Rule: r.ruleName(), ID: r.id(), Limit: r.byte(), WidthMillis: r.amount(), EndMillis: r.amount(), Used: r.amount(), Quota: r.amount(), Name: r.name(),
	}
	if r.err == nil && (int(w.Limit) >= MaxLimits || w.WidthMillis == 0 || w.WidthMillis > MaxWidthMillis) {
		r.fail("want the limit of a warning")
	}
	if !released {
		w.At = r.amount()
	}
	return w
}

func (r *reader) ruleName() string {
	name := string(r.counted(MaxName))
	if r.err == nil && !IsName(name) {
		r.fail("want a rule")
	}
	return name
}

func (r *reader) ruleReport(released bool) (p RuleReport) {
	p.Name, p.SpanMillis, p.Amounts, p.Every = r.ruleName(), r.amount(), r.amounts(), r.amount()
	if !released {
		p.SyncMillis = r.amount()
	}
	p.RecentMillis, p.Recent = r.amount(), r.amounts()
	p.Used, p.Refused = r.keyList(released), r.keyList(released)
	if p.Shadow = r.few(1) == 1; !p.Shadow {
		return p
	}
	p.Limits = several(r, r.few(MaxLimits), r.reportLimit)
	s := &p.Sample
	s.Threshold, s.SinceNanos = r.uint64(), r.uint64()
	s.Keys = several(r, r.most(uint64(r.count()), MaxReportSample), func() SampledKey {
		return SampledKey{Hash: r.uint64(), Refused: r.byte() != 0, Asked: several(r, len(p.Limits), r.asked)}
	})
	if r.err == nil {
		s.unpack(len(p.Limits))
	}
	return p
}

func (r *reader) amounts() Amounts {
	return Amounts{Requests: r.amount(), Hits: r.amount(), RefusedRequests: r.amount(), RefusedHits: r.amount()}
}

func (r *reader) reportLimit() ReportLimit {
	return ReportLimit{Max: r.amount(), WidthMillis: r.width()}
}

func (r *reader) asked() AskedWindows {
	return AskedWindows{Newest: r.uvarint(), Hits: several(r, r.few(MaxReportWindows), r.uint32)}
}

func (r *reader) uint32() uint32 {
	n := r.uvarint()
	if n > math.MaxUint32 {
		r.fail("want at most 2^32-1")
	}
	return uint32(n)
}

func (r *reader) keyList(released bool) KeyList {
	return KeyList{Floor: r.amount(), Keys: several(r, r.few(MaxReportKeys), func() ReportKey { return r.reportKey(released) })}
}

func (r *reader) reportKey(released bool) ReportKey {
	k := ReportKey{ID: r.id(), Hits: r.amount(), Error: r.amount(), Recent: r.amount(), Use: r.amount()}
	if !released {
		k.Leased, k.Pending = r.amount(), r.amount()
	}
	k.Name = r.name()
	if r.err == nil && k.Error > k.Hits {
		r.fail("want an Error that is not above Hits")
	}
	return k
}

func (r *reader) name() []byte {
	name := r.counted(MaxReportName)
	values := 0
	for rest := name; len(rest) > 0 && r.err == nil; values++ {
		var ok bool
		if _, _, rest, ok = NextValue(rest); !ok || values == MaxReportValues {
			r.fail("want the values of a name")
		}
	}
	return name
}
