package memory

import (
	"context"

	"weir/internal/share"
	"weir/internal/store"
)

// counters is a bounded table of counters that can be read in parts. A new counter in a full table
// takes the room of the least worth counter in the largest group of the largest namespace.
type counters struct {
	table[counterKey, counter]
	most int
	// mostBytes bounds the memory of all rows; 0 for no bound. bytes is their memory.
	mostBytes, bytes int
	shares           share.Shares[string, groups] // by size
	// places has each row in one place as long as the row exists. Free places are nil.
	places []*counterRow
	free   []int
	// born is how many rows were ever added.
	born uint64
	// forgotten, unless nil, is called for each counter that is removed.
	forgotten func(counterKey)
}

type counterRow = row[counterKey, counter]

// counter is everything that the store keeps of a counter.
type counter struct {
	store.Contents
	standing
	place int
	bytes int // of memory, since the row was placed
	// born numbers the rows in the order of their insertion.
	born uint64
}

func newCounters(most int) *counters {
	c := &counters{table: newTable[counterKey, counter](), most: most}
	c.removed = c.leave
	return c
}

// insert adds a row for a counter that has none.
func (c *counters) insert(key counterKey, now, expires uint64) *counterRow {
	if len(c.queue) >= c.most {
		c.makeRoomFor(key.namespace, now)
	}
	if own := c.shares.Of(key.namespace); own != nil {
		key.namespace = own.Owner // one text for all rows
	}
	e := c.table.insert(key, expires)
	c.settle(e)
	return e
}

// makeRoomFor removes a row for one of a namespace.
func (c *counters) makeRoomFor(namespace string, now uint64) {
	c.makeRoom(now, func() *counterRow { return c.shares.MakesRoom(namespace).Of.victim() })
}

const (
	// counterBytes is the memory of a counter without its windows, in the map, the queue and its places,
	// too. It is measured: a test fills stores.
	counterBytes = 340
	windowBytes  = 16
)

// size is what a row takes of its namespace's share, and of its group's. Where memory is bounded, that
// is its memory, but an even part of the bound at least: the number of rows is bounded, too.
func (c *counters) size(e *counterRow) int {
	if c.mostBytes == 0 {
		return 1
	}
	return max(1, e.value.bytes, c.mostBytes/c.most)
}

// fit counts the memory of a row that was just hit, and makes room for what it needs more. As the row is there already, it
// makes room itself only if its group has no other.
func (c *counters) fit(e *counterRow, now uint64) {
	bytes, size := counterBytes+cap(e.value.Windows)*windowBytes*9/8, c.size(e) // memory comes in sizes
	c.bytes += bytes - e.value.bytes
	e.value.bytes = bytes
	if by := c.size(e) - size; by != 0 {
		c.shares.Grow(e.key.namespace, by)
		e.value.group.grow(by)
	}
	if c.mostBytes == 0 || c.bytes <= c.mostBytes {
		return
	}
	rank := e.value.rank
	e.value.group.ranks.move(e, lastRank)
	for c.bytes > c.mostBytes && len(c.queue) > 1 {
		c.makeRoomFor(e.key.namespace, now)
	}
	if own := e.value.group; own != nil {
		own.ranks.move(e, rank)
	}
}

// place puts a counter that has used hits of a quota into a group of its namespace, as the most
// recently hit.
func (c *counters) place(e *counterRow, used, quota uint64) {
	if own := e.value.group; own != nil {
		own.of.place(e, used, quota, c.size(e))
		return
	}
	size := c.size(e)
	c.shares.Grow(e.key.namespace, size).Of.place(e, used, quota, size)
}

// settle gives a new row its place. The row has no group yet.
func (c *counters) settle(e *counterRow) {
	c.born++
	e.value.born = c.born
	if last := len(c.free) - 1; last >= 0 {
		e.value.place = c.free[last]
		c.free = c.free[:last]
		c.places[e.value.place] = e
		return
	}
	e.value.place = len(c.places)
	c.places = append(c.places, e)
}

// leave frees the place of a removed row.
func (c *counters) leave(e *counterRow) {
	if own := e.value.group; own != nil {
		own.of.remove(e, c.size(e))
		c.shares.Grow(e.key.namespace, -c.size(e))
	}
	c.bytes -= e.value.bytes
	e.value.bytes = 0
	c.places[e.value.place] = nil
	c.free = append(c.free, e.value.place)
	if c.forgotten != nil {
		c.forgotten(e.key)
	}
}

const (
	// partPlaces bounds the places that a part reads while the store is locked.
	partPlaces = 1024
	// A part ends early once it has copied partWindows windows.
	partWindows = 4096
)

// reading reads the counters of a namespace in parts. It skips rows that were added after it began.
// A counter that was removed and added again is such a row, so no counter is read twice. A row that
// exists all the time keeps its place, so none is missed.
type reading struct {
	store     *Store
	namespace string
	only      *store.Wanted
	born      uint64
	next      int // place
	part      []store.LimitCounter
}

// Counters implements [store.Store]. It searches all counters, also for those of a single key, which
// is rarely asked for: an index would make every push slower.
func (s *Store) Counters(ctx context.Context, namespace string, only *store.Wanted, visit func(store.LimitCounter) error) error {
	r := s.read(namespace, only)
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		more = r.readPart()
		for _, c := range r.part {
			if err := visit(c); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (s *Store) read(namespace string, only *store.Wanted) *reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &reading{store: s, namespace: namespace, only: only, born: s.counters.born}
}

// readPart copies the counters of the next part that have a window that counts, and reports whether
// there may be more. It locks the store.
func (r *reading) readPart() (more bool) {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	calendar := store.Calendar{NowNanos: uint64(s.now().UnixNano())}
	r.part = r.part[:0]
	places := s.counters.places
	end := min(r.next+partPlaces, len(places))
	var windows []store.Window // of all counters of the part
	for ; r.next < end && len(windows) < partWindows; r.next++ {
		e := places[r.next]
		if e == nil || !r.wants(e) {
			continue
		}
		first := len(windows)
		windows = append(windows, e.value.Windows...)
		found := store.LimitCounter{LimitCounter: e.key.LimitCounter, Limit: e.value.Limit, Windows: windows[first:len(windows):len(windows)]}
		if found.Windows = calendar.Counting(found); len(found.Windows) > 0 {
			r.part = append(r.part, found)
		}
	}
	return r.next < len(places)
}

func (r *reading) wants(e *counterRow) bool {
	return e.value.born <= r.born && e.key.namespace == r.namespace && r.only.Wants(e.key.LimitCounter)
}
