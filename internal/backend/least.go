package backend

import (
	"maps"
	"math"
	"slices"
	"sort"

	"weir/internal/wire"
)

// asked is how many hits a key asked for in a window.
type asked struct {
	least, most uint64
	// sampled means that it stands for other keys too.
	sampled bool
	// floors is the sum of the floors of the reports with the key among their busy keys.
	floors uint64
}

// measureLimit measures the windows of a limit that all reports cover in full.
func measureLimit(all []seen, at int, l wire.ReportLimit, threshold uint64) MeasuredLimit {
	m := MeasuredLimit{Limit: l.Max, WidthMS: l.WidthMillis}
	bounded, unseen := true, uint64(0)
	all = slices.DeleteFunc(slices.Clone(all), func(s seen) bool { return at >= len(s.Limits) || s.Limits[at].WidthMillis != l.WidthMillis })
	width := l.WidthMillis * 1e6
	// A report has the newest windows of a key, and may lack older windows. Windows that had not
	// ended when it was made still run.
	first, end := uint64(0), uint64(math.MaxUint64)
	for _, s := range all {
		now := s.at / width
		first = max(first, (s.Sample.SinceNanos+width-1)/width, now-min(now, wire.MaxReportWindows-1))
		end = min(end, now)
		if s.Sample.Threshold < math.MaxUint64 && len(s.Sample.Busy) == 0 {
			bounded = false
		}
	}
	for _, s := range all {
		if bounded && s.Sample.Threshold < math.MaxUint64 {
			b := &s.Sample.Busy[at]
			first = max(first, b.Newest+1-min(b.Newest+1, uint64(len(b.Windows))))
		}
	}
	if first >= end {
		m.Running = true
		first, end = end, end+1
	}
	every := 1.0
	if bounded {
		every = math.Pow(2, 64) / (float64(threshold) + 1)
	}
	var likely, worst demand
	for number := first; number < end; number++ {
		w := windowOf(all, at, number, threshold, bounded)
		if w.hits == 0 {
			continue
		}
		m.Windows++
		m.Hits += w.hits
		unseen = max(unseen, w.floor)
		left := float64(w.hits)
		for _, k := range w.keys {
			m.Most = max(m.Most, k.least)
			left -= float64(k.least)
			worst = append(worst, keysAlike{k.most, 1})
			switch {
			case bounded && k.least > w.floor: // every such key was seen
				likely = append(likely, keysAlike{k.least, 1})
			case k.sampled:
				likely = append(likely, keysAlike{k.least, every})
			}
		}
		if w.floor > 0 {
			worst = append(worst, keysAlike{w.floor, max(0, left) / float64(w.floor)})
		}
	}
	spare := float64(m.Hits) / 1000
	m.Least = likely.least(spare)
	if bounded {
		sure := max(m.Least, worst.least(spare))
		m.Sure, m.Unseen = &sure, &unseen
	}
	return m
}

// demand is the hits that keys asked for in a window.
type demand []keysAlike

type keysAlike struct {
	hits uint64
	keys float64
}

// least returns the lowest limit for a window that refuses at most spare hits.
func (d demand) least(spare float64) uint64 {
	most := uint64(0)
	for _, s := range d {
		most = max(most, s.hits)
	}
	return uint64(sort.Search(int(most), func(limit int) bool {
		refused := 0.0
		for _, s := range d {
			refused += s.keys * float64(s.hits-min(s.hits, uint64(limit)))
		}
		return refused <= spare
	}))
}

// keysOfWindow are the keys seen in a window. All keys together had hits, and no unseen key more
// than floor.
type keysOfWindow struct {
	keys        []asked
	hits, floor uint64
}

// windowOf sums up the reports about a window.
func windowOf(all []seen, at int, number, threshold uint64, bounded bool) (w keysOfWindow) {
	keys := map[uint64]*asked{}
	of := func(hash uint64) *asked {
		k := keys[hash]
		if k == nil {
			k = &asked{sampled: hash <= threshold}
			keys[hash] = k
		}
		return k
	}
	// If a key above a report's threshold is not among its busy keys, the report's floor bounds its
	// hits.
	floors := map[uint64]uint64{} // by threshold
	for i := range all {
		s := &all[i].Sample
		known := uint64(0)
		for j := range s.Keys {
			k, a := &s.Keys[j], &s.Keys[j].Asked[at]
			if age := a.Newest - number; number <= a.Newest && age < uint64(len(a.Hits)) && a.Hits[age] > 0 && (bounded || k.Hash <= threshold) {
				n := uint64(a.Hits[age])
				known += n
				key := of(k.Hash)
				key.least += n
				key.most += n
			}
		}
		if s.Threshold == math.MaxUint64 || !bounded {
			w.hits += known
			continue
		}
		b := &s.Busy[at]
		age := b.Newest - number
		if number > b.Newest || age >= uint64(len(b.Windows)) {
			continue
		}
		window := &b.Windows[age]
		floor := uint64(window.Floor)
		w.hits += uint64(window.Hits)
		w.floor += floor
		floors[s.Threshold] += floor
		for _, k := range window.Keys {
			key := of(k.Hash)
			key.least += uint64(k.Hits)
			key.most += uint64(k.Hits) + uint64(k.More)
			key.floors += floor
		}
	}
	thresholds := slices.Sorted(maps.Keys(floors))
	below := make([]uint64, 1, len(thresholds)+1) // the sums of the first floors
	for i, threshold := range thresholds {
		below = append(below, below[i]+floors[threshold])
	}
	for hash, k := range keys {
		at, _ := slices.BinarySearch(thresholds, hash)
		k.most += below[at]
		k.most -= min(k.most, k.floors)
		w.keys = append(w.keys, *k)
	}
	return w
}
