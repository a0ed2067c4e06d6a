package wire

import (
	"encoding/binary"
	"slices"
)

// shapedVersion begins a report with shapes of rules, steppedVersion a report whose warnings have
// steps, heldVersion a report of held places, and recentVersion any other. Older reports begin with oldVersion, or with warningVersion if they
// have warnings. Both lack recent figures.
const (
	oldVersion     = 0x71
	warningVersion = 0x72
	recentVersion  = 0x73
	heldVersion    = 0x74
	steppedVersion = 0x75
	shapedVersion  = 0x76
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
	// Shapes are those of all rules with a name that the sender synchronises, whether or not they
	// have requests.
	Shapes []RuleShape
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
	// Requests and Hits were asked for; RefusedRequests and RefusedHits of them were refused. All
	// are exact.
	Requests, Hits, RefusedRequests, RefusedHits uint64
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
func IsReport(b []byte) bool { return len(b) > 0 && beginsReport(b[0]) }

func beginsReport(head byte) bool { return oldVersion <= head && head <= shapedVersion }

// AppendReportHeader appends the part of a report before its count rules.
func AppendReportHeader(dst []byte, r *Report, count int) []byte {
	version := byte(recentVersion)
	if len(r.Held) > 0 {
		version = heldVersion
	}
	for i := range r.Warnings {
		if r.Warnings[i].At != 0 {
			version = steppedVersion
		}
	}
	if len(r.Shapes) > 0 {
		version = shapedVersion
	}
	dst = append(dst, version, byte(len(r.Namespace)))
	dst = append(dst, r.Namespace...)
	dst = binary.LittleEndian.AppendUint64(dst, r.Node)
	dst = binary.LittleEndian.AppendUint64(dst, r.Sender)
	dst = binary.LittleEndian.AppendUint64(dst, r.AtNanos)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(count))
	dst = append(dst, byte(len(r.Warnings)))
	for i := range r.Warnings {
		w := &r.Warnings[i]
		dst = append(append(dst, byte(len(w.Rule))), w.Rule...)
		dst = append(append(dst, w.ID[:]...), w.Limit)
		for _, n := range [...]uint64{w.WidthMillis, w.EndMillis, w.Used, w.Quota, uint64(len(w.Name))} {
			dst = appendUvarint(dst, n)
		}
		dst = append(dst, w.Name...)
		if version >= steppedVersion {
			dst = appendUvarint(dst, w.At)
		}
	}
	if version < heldVersion {
		return dst
	}
	dst = append(dst, byte(len(r.Held)))
	for i := range r.Held {
		h := &r.Held[i]
		dst = append(dst, h.ID[:]...)
		dst = binary.LittleEndian.AppendUint64(appendUvarint(dst, h.Places), h.SinceNanos)
	}
	if version < shapedVersion {
		return dst
	}
	return appendShapes(dst, r.Shapes)
}

// AppendReport appends a whole report.
func AppendReport(dst []byte, r *Report) []byte {
	dst = AppendReportHeader(dst, r, len(r.Rules))
	for i := range r.Rules {
		dst = AppendRuleReport(dst, &r.Rules[i])
	}
	return dst
}

// AppendRuleReport appends one rule of a report.
func AppendRuleReport(dst []byte, r *RuleReport) []byte {
	dst = append(append(dst, byte(len(r.Name))), r.Name...)
	a := &r.Recent
	for _, n := range [...]uint64{
		r.SpanMillis, r.Requests, r.Hits, r.RefusedRequests, r.RefusedHits, r.Every, r.RecentMillis, a.Requests, a.Hits, a.RefusedRequests, a.RefusedHits,
	} {
		dst = appendUvarint(dst, n)
	}
	dst = appendKeys(appendKeys(dst, &r.Used), &r.Refused)
	if !r.Shadow {
		return append(dst, 0)
	}
	dst = append(dst, 1, byte(len(r.Limits)))
	for _, l := range r.Limits {
		dst = appendUvarint(appendUvarint(dst, l.Max), l.WidthMillis)
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

func appendKeys(dst []byte, l *KeyList) []byte {
	dst = append(appendUvarint(dst, l.Floor), byte(len(l.Keys)))
	for i := range l.Keys {
		k := &l.Keys[i]
		dst = append(dst, k.ID[:]...)
		dst = appendUvarint(appendUvarint(appendUvarint(appendUvarint(dst, k.Hits), k.Error), k.Recent), k.Use)
		dst = append(appendUvarint(dst, uint64(len(k.Name))), k.Name...)
	}
	return dst
}

// DecodeReport reads a report, and checks its bounds. The result shares memory with b. Any error
// wraps [ErrMalformed].
func DecodeReport(b []byte) (*Report, error) {
	r := reader{data: b}
	version := r.byte()
	if !beginsReport(version) {
		r.fail("not a report")
	}
	if len(b) > MaxReport {
		r.fail("want a report of at most 64 KiB")
	}
	p := &Report{Namespace: r.namespace()}
	p.Node, p.Sender, p.AtNanos = r.uint64(), r.uint64(), r.uint64()
	rules := r.most(r.count(), MaxReportRules)
	if version >= warningVersion {
		for range r.most(int(r.byte()), MaxReportWarnings) {
			if r.err != nil {
				break
			}
			w := r.warning()
			if version >= steppedVersion {
				w.At = r.amount()
			}
			p.Warnings = append(p.Warnings, w)
		}
	}
	if version >= heldVersion {
		for range r.most(int(r.byte()), MaxReportHeld) {
			if r.err != nil {
				break
			}
			p.Held = append(p.Held, r.heldKey())
		}
	}
	if version >= shapedVersion {
		for range int(r.byte()) {
			if r.err != nil {
				break
			}
			p.Shapes = append(p.Shapes, r.shape())
		}
	}
	for range rules {
		if r.err != nil {
			break
		}
		rule := r.ruleReport(version >= recentVersion)
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

// most reads a count of at most most.
func (r *reader) most(count, most int) int {
	if count > most {
		r.fail("too many elements in a part of a report")
		return 0
	}
	return count
}

// amount reads a number of hits, requests or milliseconds.
func (r *reader) amount() uint64 {
	n := r.uvarint()
	if n > MaxHits {
		r.fail("want at most 2^53-1")
		return 0
	}
	return n
}

func (r *reader) heldKey() (h HeldKey) {
	copy(h.ID[:], r.bytes(len(h.ID)))
	h.Places, h.SinceNanos = r.amount(), r.uint64()
	return h
}

func (r *reader) warning() (w Warning) {
	w.Rule = r.ruleName()
	copy(w.ID[:], r.bytes(len(w.ID)))
	w.Limit = r.byte()
	w.WidthMillis, w.EndMillis, w.Used, w.Quota = r.amount(), r.amount(), r.amount(), r.amount()
	if r.err == nil && (int(w.Limit) >= MaxLimits || w.WidthMillis == 0 || w.WidthMillis > MaxWidthMillis) {
		r.fail("want the limit of a warning")
	}
	w.Name = r.name()
	return w
}

func (r *reader) ruleName() string {
	name := string(r.bytes(r.most(int(r.byte()), MaxName)))
	if r.err == nil && !IsName(name) {
		r.fail("want a rule")
	}
	return name
}

// ruleReport reads one rule of a report, with or without recent figures.
func (r *reader) ruleReport(recent bool) (p RuleReport) {
	p.Name = r.ruleName()
	for _, n := range [...]*uint64{&p.SpanMillis, &p.Requests, &p.Hits, &p.RefusedRequests, &p.RefusedHits, &p.Every} {
		*n = r.amount()
	}
	if a := &p.Recent; recent {
		p.RecentMillis = r.amount()
		a.Requests, a.Hits, a.RefusedRequests, a.RefusedHits = r.amount(), r.amount(), r.amount(), r.amount()
	}
	p.Used, p.Refused = r.keyList(recent), r.keyList(recent)
	switch r.byte() {
	case 0:
		return p
	case 1:
		p.Shadow = true
	default:
		r.fail("want a flag for shadow rules")
	}
	for range r.most(int(r.byte()), MaxLimits) {
		l := ReportLimit{Max: r.amount(), WidthMillis: r.amount()}
		if r.err == nil && (l.WidthMillis == 0 || l.WidthMillis > MaxWidthMillis) {
			r.fail("want a window of 1 ms to 366 days")
		}
		p.Limits = append(p.Limits, l)
	}
	s := &p.Sample
	s.Threshold, s.SinceNanos = r.uint64(), r.uint64()
	for range r.most(r.count(), MaxReportSample) {
		if r.err != nil {
			break
		}
		k := SampledKey{Hash: r.uint64(), Refused: r.byte() != 0}
		for range p.Limits {
			k.Asked = append(k.Asked, r.asked())
		}
		s.Keys = append(s.Keys, k)
	}
	s.unpack(len(p.Limits))
	return p
}

func (r *reader) asked() (a AskedWindows) {
	a.Newest = r.uvarint()
	for range r.most(int(r.byte()), MaxReportWindows) {
		h := r.uvarint()
		if h > 1<<32-1 {
			r.fail("want at most 2^32-1")
		}
		a.Hits = append(a.Hits, uint32(h))
	}
	return a
}

func (r *reader) keyList(recent bool) (l KeyList) {
	l.Floor = r.amount()
	for range r.most(int(r.byte()), MaxReportKeys) {
		if r.err != nil {
			break
		}
		var k ReportKey
		copy(k.ID[:], r.bytes(len(k.ID)))
		k.Hits, k.Error = r.amount(), r.amount()
		if recent {
			k.Recent = r.amount()
		}
		k.Use = r.amount()
		k.Name = r.name()
		if r.err == nil && k.Error > k.Hits {
			r.fail("want an Error that is not above Hits")
		}
		l.Keys = append(l.Keys, k)
	}
	return l
}

// name reads a list of values.
func (r *reader) name() []byte {
	size := r.amount()
	if size > MaxReportName {
		r.fail("want a shorter name")
		return nil
	}
	name := r.bytes(int(size))
	values := 0
	for rest := name; len(rest) > 0 && r.err == nil; values++ {
		var ok bool
		if _, _, rest, ok = NextValue(rest); !ok || values == MaxReportValues {
			r.fail("want the values of a name")
		}
	}
	return name
}
