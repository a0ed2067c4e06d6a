package observe

import (
	"encoding/binary"
	"math"
	"slices"

	"weir/internal/engine/jitter"
	"weir/internal/engine/rule"
	"weir/internal/sketch"
	"weir/internal/wire"
)

const (
	// reportEvery is the time between two reports, in nanoseconds. Figures are collected in
	// generations, and a report covers the last generation or the last two.
	reportEvery = int64(5e9)
	// wakesAfter is the time until the first report after a pause.
	wakesAfter = int64(1e9)
	generation = int64(60e9)
	// exactEvery is how many requests a second are recorded with their keys. Beyond that, one
	// request in sampled is recorded, at random.
	exactEvery = 1000
	sampled    = 8
)

// The kept sightings fit a report, or this does not compile.
const (
	_ = uint(wire.MaxReportKeys - sketch.Keys)
	_ = uint(wire.MaxReportName - sketch.MaxName)
	_ = uint(wire.MaxReportSample - sketch.SampleKeys - wire.MaxBusyKeys - 1)
	_ = uint(wire.MaxReportWindows - sketch.Windows)
	_ = uint(wire.MaxBusyWindows - sketch.BusyWindows)
)

// sightings have what a worker has seen of its rules' keys, for people to read. Decisions don't
// depend on them.
type sightings struct {
	rules  []seen
	exact  int    // requests that are recorded before sampling begins
	skip   uint64 // requests to skip
	random uint64
	// skipped means that requests of this generation were left out, and skippedBefore those of the
	// previous generation.
	skipped, skippedBefore bool

	since    int64 // when exact was set, by the host's clock like the next three
	began    int64 // beginning of this generation
	before   int64 // beginning of the previous generation
	reportAt int64
	idle     bool // the last report was empty
	// marked are the times of the last two reports.
	marked [2]int64
	body   []byte
}

// seen has the figures of one rule.
type seen struct {
	now, past tally
	sample    *sketch.Sample // for shadow rules only
	// gone are the amounts of past generations, and marks the amounts of all at the last two
	// reports.
	gone  wire.Amounts
	marks [2]wire.Amounts
}

func sum(a, b wire.Amounts) wire.Amounts {
	return wire.Amounts{
		Requests: a.Requests + b.Requests, Hits: a.Hits + b.Hits,
		RefusedRequests: a.RefusedRequests + b.RefusedRequests, RefusedHits: a.RefusedHits + b.RefusedHits,
	}
}

// all returns the amounts since the beginning.
func (s *seen) all() wire.Amounts { return sum(s.gone, sum(s.now.Amounts, s.past.Amounts)) }

// mark moves the beginning of the recent time to the last call but one.
func (s *seen) mark() {
	s.marks = [2]wire.Amounts{s.all(), s.marks[0]}
	for _, h := range [...]*sketch.Heavy{&s.now.used, &s.now.refused, &s.past.used, &s.past.refused} {
		h.Mark()
	}
}

// tally is one generation of a rule.
type tally struct {
	wire.Amounts
	used, refused sketch.Heavy
}

func newTally(named bool) tally {
	return tally{used: sketch.NewHeavy(named), refused: sketch.NewHeavy(named)}
}

func (t *tally) reset() {
	t.used.Reset()
	t.refused.Reset()
	*t = tally{used: t.used, refused: t.refused}
}

func newSightings(rules []rule.Rule, now, hostNow int64, random jitter.Random) *sightings {
	s := &sightings{
		rules: make([]seen, len(rules)), exact: exactEvery, random: random() | 1, since: hostNow, began: hostNow, before: hostNow,
		reportAt: hostNow + random.Around(reportEvery), marked: [2]int64{hostNow, hostNow},
	}
	for i := range rules {
		r := &rules[i]
		s.rules[i] = seen{now: newTally(r.Reveal != 0), past: newTally(r.Reveal != 0)}
		s.rules[i].follow(r, now)
	}
	return s
}

// follow begins or ends a sample of a rule's keys: shadow rules have one, and rules may change.
func (s *seen) follow(r *rule.Rule, now int64) {
	if r.Shadow == (s.sample != nil) {
		return
	}
	s.sample = nil
	if r.Shadow {
		own := r.Own()
		widths := make([]int64, len(own))
		for j := range own {
			widths[j] = own[j].Width
		}
		s.sample = sketch.NewSample(widths, now)
	}
}

// weigh returns how many requests the next request stands for; 0 if it is not recorded.
func (s *sightings) weigh() uint64 {
	if s.exact > 0 {
		s.exact--
		return 1
	}
	s.skipped = true
	if s.skip > 1 {
		s.skip--
		return 0
	}
	// Marsaglia's xorshift makes gaps of sampled on average, so that no rhythm of clients is in
	// step with them.
	s.random ^= s.random << 13
	s.random ^= s.random >> 7
	s.random ^= s.random << 17
	s.skip = 1 + s.random%(2*sampled-1)
	return sampled
}

// turn begins a new generation if it is time, and refills exact.
func (s *sightings) turn(now, hostNow int64) {
	if hostNow-s.since >= 1e9 || hostNow < s.since {
		s.exact, s.since = exactEvery, hostNow
	}
	if hostNow-s.began < generation && hostNow >= s.began {
		return
	}
	s.before, s.began = s.began, hostNow
	if s.before > hostNow {
		s.before = hostNow
	}
	for i := range s.rules {
		r := &s.rules[i]
		r.gone = sum(r.gone, r.past.Amounts)
		r.past, r.now = r.now, r.past
		r.now.reset()
		if r.sample != nil {
			r.sample.Tend(now)
		}
	}
	s.skippedBefore, s.skipped = s.skipped, false
}

// wake has what an idle worker is asked for told soon, as somebody may be trying a rule.
func (s *sightings) wake(hostNow int64) {
	if soon := hostNow + wakesAfter; s.idle && s.reportAt > soon {
		for i := range s.rules {
			if s.rules[i].now.Requests > 0 {
				s.reportAt, s.idle = soon, false
				return
			}
		}
	}
}

// hashOf returns the hash by which samples choose keys.
func hashOf(id [16]byte) uint64 { return binary.LittleEndian.Uint64(id[8:]) }

// thousandths converts the share in [counter.Counter.Worth].
func thousandths(use uint16) uint16 {
	return uint16(max(0, min(1000, 1000*math.Float32frombits(uint32(use)<<16))))
}

// report appends a report on a rule, in at most most bytes if possible.
func (s *sightings) report(dst []byte, r *rule.Rule, name string, now, hostNow int64, most int) []byte {
	of := &s.rules[r.Index]
	a, b := &of.now, &of.past
	p := wire.RuleReport{
		Name: name, Shadow: r.Shadow, SpanMillis: uint64(max(1, (hostNow-s.before)/1e6)),
		Amounts: between(wire.Amounts{}, sum(a.Amounts, b.Amounts)), Every: 1,
		RecentMillis: uint64(max(1, (hostNow-s.marked[1])/1e6)), Recent: between(of.marks[1], of.all()),
	}
	if s.skipped || s.skippedBefore {
		p.Every = sampled
	}
	if r.Synced() {
		p.SyncMillis = uint64(r.Interval / 1e6)
	}
	told := now - r.Interval // hits up to then are pushed
	p.Used, p.Refused = keyList(&a.used, &b.used, told), keyList(&a.refused, &b.refused, told)
	threshold, own := uint64(math.MaxUint64), r.Own()
	if of.sample != nil {
		for i := range own {
			p.Limits = append(p.Limits, wire.ReportLimit{Max: own[i].Max, WidthMillis: uint64(own[i].Width / 1e6)})
		}
		threshold, _ = of.sample.Threshold()
	}
	start := len(dst)
	for {
		if of.sample != nil {
			p.Sample = sampleOf(of.sample, len(own), threshold)
			// Busy keys are left out last.
			if threshold < math.MaxUint64 && len(p.Used.Keys)+len(p.Refused.Keys)+len(p.Sample.Keys) > 0 {
				p.Sample.Busy = busyOf(of.sample, len(own), threshold)
			}
		}
		dst = wire.AppendRuleReport(dst[:start], &p)
		if len(dst)-start <= most || len(p.Used.Keys)+len(p.Refused.Keys)+len(p.Sample.Keys) == 0 {
			return dst
		}
		if len(p.Sample.Keys) > wire.MaxReportKeys || len(p.Used.Keys)+len(p.Refused.Keys) == 0 {
			threshold >>= 1
			continue
		}
		halve(&p.Used)
		halve(&p.Refused)
	}
}

// between returns what was added between two sums, as a report can have it.
func between(before, after wire.Amounts) wire.Amounts {
	return wire.Amounts{
		Requests: clamp(after.Requests - before.Requests), Hits: clamp(after.Hits - before.Hits),
		RefusedRequests: clamp(after.RefusedRequests - before.RefusedRequests), RefusedHits: clamp(after.RefusedHits - before.RefusedHits),
	}
}

func clamp(hits uint64) uint64 { return min(hits, wire.MaxHits) }

// keyList lists the keys of two generations. What was pending before the time told is pushed.
func keyList(newer, older *sketch.Heavy, told int64) (l wire.KeyList) {
	keys, floor := sketch.Merge(newer, older)
	l.Floor = floor
	for i := range keys {
		k := &keys[i]
		if k.At <= told {
			k.Pending = 0
		}
		l.Keys = append(l.Keys, wire.ReportKey{
			ID: k.ID, Hits: k.Count, Error: k.Error, Recent: k.Recent, Use: uint64(k.Use), Leased: clamp(k.Leased), Pending: clamp(k.Pending), Name: k.Name,
		})
	}
	return l
}

// halve drops the keys with fewest hits.
func halve(l *wire.KeyList) {
	if n := len(l.Keys); n > 0 {
		l.Floor = max(l.Floor, l.Keys[n/2].Hits)
		l.Keys = l.Keys[:n/2]
	}
}

func sampleOf(s *sketch.Sample, limits int, threshold uint64) (w wire.Sample) {
	_, since := s.Threshold()
	w.Threshold, w.SinceNanos = threshold, uint64(max(0, since))
	s.Each(threshold, func(hash uint64, refused bool) {
		k := wire.SampledKey{Hash: hash, Refused: refused, Asked: make([]wire.AskedWindows, limits)}
		for i := range k.Asked {
			k.Asked[i].Newest, k.Asked[i].Hits = s.Asked(hash, i)
		}
		w.Keys = append(w.Keys, k)
	})
	return w
}

// busyOf returns the keys above a threshold in the newest windows of a sample, as far back as they
// fit a report.
func busyOf(s *sketch.Sample, limits int, threshold uint64) []wire.BusyWindows {
	for windows, most := sketch.BusyWindows, sketch.BusyKeys; most > 0; {
		busy := make([]wire.BusyWindows, limits)
		var seen []uint64
		for i := range busy {
			newest, all := s.Busy(i)
			busy[i].Newest = newest
			for _, w := range all[:windows] {
				busy[i].Windows = append(busy[i].Windows, busyWindow(&w, threshold, most, &seen))
			}
		}
		switch {
		case len(seen) <= wire.MaxBusyKeys:
			return busy
		case windows > 1:
			windows--
		default:
			most /= 2
		}
	}
	return nil
}

// busyWindow returns the first keys of a window above a threshold, and adds new keys to seen.
func busyWindow(b *sketch.Busy, threshold uint64, most int, seen *[]uint64) wire.BusyWindow {
	w := wire.BusyWindow{Hits: b.Hits, Floor: b.Floor}
	for _, k := range b.Keys {
		switch {
		case k.Hash <= threshold:
		case len(w.Keys) == most || k.Hash == math.MaxUint64:
			w.Floor = max(w.Floor, k.Most())
		default:
			w.Keys = append(w.Keys, wire.BusyKey(k))
			if !slices.Contains(*seen, k.Hash) {
				*seen = append(*seen, k.Hash)
			}
		}
	}
	return w
}
