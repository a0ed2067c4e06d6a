package sketch

import "math"

const (
	// SampleKeys is the most keys of a Sample.
	SampleKeys = 192
	// Windows is how many windows of each key a Sample keeps.
	Windows = 16

	places = 512 // size of the index, more than two for each key
)

// Sample keeps a part of all keys, and what each of them asked for in the newest windows of some
// widths.
//
// Only the hashes of keys decide which are kept: those below a threshold, which is halved when
// there are too many keys, and doubled when there are few. So if several nodes see the same keys,
// their samples have the same keys, up to the lowest of their thresholds.
//
// A fair sample of keys misses the few keys with most hits. So it also keeps, for each of the
// newest windows, the keys with most hits, whatever their hashes.
type Sample struct {
	busy      []busy // one for each width
	widths    []int64
	threshold uint64 // the greatest hash of a kept key
	since     int64
	horizon   int64
	keys      []sampled
	asked     []asked // for each key, one for each width
	index     [places]uint16
}

// sampled is a key. Times are in nanoseconds; 0 means never.
type sampled struct {
	hash          uint64
	seen, refused int64
}

// asked has the hits that a key asked for in windows of the clock of one width.
type asked struct {
	newest uint64 // number of a window
	hits   [Windows]uint32
}

// leastHorizon is how long a key without new requests is kept at least, in nanoseconds.
const leastHorizon = int64(120e9)

// NewSample makes an empty sample at a time, for windows of these widths in nanoseconds. widths
// must not be empty or modified later.
func NewSample(widths []int64, now int64) *Sample {
	s := &Sample{
		widths: widths, threshold: math.MaxUint64, since: now, horizon: leastHorizon,
		keys: make([]sampled, 0, SampleKeys), asked: make([]asked, 0, SampleKeys*len(widths)),
	}
	for _, w := range widths {
		s.horizon = max(s.horizon, Windows*w)
		s.busy = append(s.busy, newBusy())
	}
	return s
}

// Add records what a key asked for.
func (s *Sample) Add(hash uint64, hits uint64, now int64) {
	for j, w := range s.widths {
		s.busy[j].add(uint64(max(now, 0)/w), hash, hits)
	}
	if hash > s.threshold {
		return
	}
	i := s.find(hash)
	if i < 0 {
		if i = s.admit(hash, now); i < 0 {
			return
		}
	}
	s.keys[i].seen = max(s.keys[i].seen, now)
	for j, w := range s.widths {
		s.asked[i*len(s.widths)+j].add(uint64(max(now, 0)/w), hits)
	}
}

// Refuse records that a key was refused.
func (s *Sample) Refuse(hash uint64, now int64) {
	if hash <= s.threshold {
		if i := s.find(hash); i >= 0 {
			s.keys[i].refused = max(s.keys[i].refused, now)
		}
	}
}

func (a *asked) add(number, hits uint64) {
	if number > a.newest {
		by := number - a.newest
		for i := Windows - 1; i >= 0; i-- {
			if a.hits[i] = 0; uint64(i) >= by {
				a.hits[i] = a.hits[uint64(i)-by]
			}
		}
		a.newest = number
	}
	if age := a.newest - number; age < Windows {
		a.hits[age] = uint32(min(uint64(a.hits[age])+min(hits, math.MaxUint32), math.MaxUint32))
	}
}

// find returns the index of a key, below 0 if it is absent.
func (s *Sample) find(hash uint64) int {
	for at := hash % places; ; at = (at + 1) % places {
		switch i := int(s.index[at]) - 1; {
		case i < 0:
			return -1
		case s.keys[i].hash == hash:
			return i
		}
	}
}

// admit adds a key whose hash is below the threshold, unless the threshold falls.
func (s *Sample) admit(hash uint64, now int64) int {
	if len(s.keys) == SampleKeys {
		s.drop(now)
	}
	for len(s.keys) == SampleKeys {
		s.threshold >>= 1
		s.drop(now)
	}
	if hash > s.threshold {
		return -1
	}
	i := len(s.keys)
	s.keys = append(s.keys, sampled{hash: hash})
	for range s.widths {
		s.asked = append(s.asked, asked{})
	}
	s.enter(i)
	return i
}

func (s *Sample) enter(i int) {
	at := s.keys[i].hash % places
	for s.index[at] != 0 {
		at = (at + 1) % places
	}
	s.index[at] = uint16(i + 1)
}

// Tend drops keys that have not come for long, and raises the threshold if there are few. Call it
// now and then.
func (s *Sample) Tend(now int64) {
	if s.drop(now); len(s.keys) < SampleKeys/4 && s.threshold < math.MaxUint64 {
		// The earlier hits of keys that were not kept are unknown.
		s.threshold, s.since = s.threshold<<1|1, now
	}
}

// drop removes the keys that no longer belong in the sample.
func (s *Sample) drop(now int64) {
	kept, n := 0, len(s.widths)
	for i := range s.keys {
		k := s.keys[i]
		if k.hash > s.threshold || now-k.seen >= s.horizon {
			continue
		}
		s.keys[kept] = k
		copy(s.asked[kept*n:(kept+1)*n], s.asked[i*n:])
		kept++
	}
	s.keys, s.asked = s.keys[:kept], s.asked[:kept*n]
	clear(s.index[:])
	for i := range s.keys {
		s.enter(i)
	}
}

// Threshold returns the greatest hash of a kept key, and the time since which all hits of such keys
// are known.
func (s *Sample) Threshold() (threshold uint64, since int64) { return s.threshold, s.since }

// Each calls visit with each kept key whose hash is at most threshold.
func (s *Sample) Each(threshold uint64, visit func(hash uint64, refused bool)) {
	for i := range s.keys {
		if k := &s.keys[i]; k.hash <= threshold {
			visit(k.hash, k.refused != 0)
		}
	}
}

// Asked returns what a key asked for in the windows of a width, the newest first, and the newest
// window's number.
func (s *Sample) Asked(hash uint64, width int) (newest uint64, hits []uint32) {
	i := s.find(hash)
	if i < 0 {
		return 0, nil
	}
	a := &s.asked[i*len(s.widths)+width]
	hits = a.hits[:]
	for len(hits) > 0 && hits[len(hits)-1] == 0 {
		hits = hits[:len(hits)-1]
	}
	return a.newest, hits
}
