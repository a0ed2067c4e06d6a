package pattern

import (
	"math/bits"
	"slices"
)

const (
	// MaxCache is the size that a pattern's cache may grow to, in bytes. Spare capacity from append
	// comes on top.
	MaxCache = 32 << 10
	// leastSlots is the number of slots at first. Rows fill at most half of them.
	leastSlots = 64
	// maxProbes is how many slots a search for a row looks at. Texts with colliding rows fill the
	// cache early.
	maxProbes = 32
	// patience is how many characters are simulated for each character that was learned before a
	// full cache is emptied. So texts that fill it again and again learn one character for eight
	// that they simulate.
	patience = 8
)

// cache is a deterministic automaton, whose rows are made when a text first reaches them. A row is
// a state: the targets of the last character, and the kind of that character if assertions ask for
// it. For each column of characters, and for the text's end, it has the next state.
//
// No text can make it slower than the simulation: a full cache keeps its content, and texts that
// need more are simulated. It is emptied only when the simulation has taken longer than filling it
// did.
type cache struct {
	columns
	targets []uint16 // after lastBits entries for none, the places where the program continues after a character
	numbers []uint16 // of the targets, by their places in the program

	next  []uint16 // the next states, by row and column
	sets  []uint64 // by row: a mask of the set's words that are not 0, and these words
	ends  []uint16 // of sets, by row
	slots []uint16 // a hash table of rows by their sets; 0 is a free slot

	// set has a bit for each target, and packed is its form in sets. The first lastBits say what
	// kind of character was last.
	set, packed []uint64

	room int // in bytes
	full bool
	// learned is how many entries of next were filled since the cache was empty, and simulated is
	// how many characters were simulated since it is full.
	learned, simulated int
}

// An entry of next is one of these, or a row.
const (
	unknown uint16 = iota
	refused
	accepted
	noRoom   // returned by row, never an entry of next
	firstRow // the state at the text's beginning
)

// The kinds of the last character.
const (
	another uint64 = iota
	word
	newline
	none // there is no last character: the text begins

	lastBits = 2
	lasts    = 1<<lastBits - 1
)

// prepare makes a cache with the first row, unless there are too many columns.
func (p *Pattern) prepare() {
	c := &p.cache
	c.targets, c.numbers = make([]uint16, lastBits), make([]uint16, len(p.program))
	c.add(p.start)
	for i := range p.program {
		if in := &p.program[i]; in.op == takeRune || in.op == takeClass {
			c.add(in.y)
		}
	}
	c.set = make([]uint64, (len(c.targets)+63)/64)
	c.slots, c.room = make([]uint16, leastSlots), MaxCache
	if p.findColumns(); c.count > 0 {
		p.empty()
	}
}

func (c *cache) add(target uint16) {
	if c.numbers[target] == 0 {
		c.numbers[target] = uint16(len(c.targets))
		c.targets = append(c.targets, target)
	}
}

// empty drops all rows but the first.
func (p *Pattern) empty() {
	c := &p.cache
	c.next = append(c.next[:0], make([]uint16, firstRow)...)
	c.sets, c.ends = c.sets[:0], c.ends[:0]
	clear(c.slots)
	c.full, c.learned, c.simulated = false, 0, 0
	clear(c.set)
	c.put(p.start)
	c.set[0] |= p.last([]byte(p.prefix))
	c.row()
}

// put adds a target to the set.
func (c *cache) put(target uint16) {
	number := c.numbers[target]
	c.set[number>>6] |= 1 << (number & 63)
}

// last returns the kind of a text's last character, if assertions ask for it.
func (p *Pattern) last(text []byte) uint64 {
	switch n := len(text); {
	case !p.asserts:
		return another
	case n == 0:
		return none
	case text[n-1] == '\n':
		return newline
	case isWord(text[n-1]):
		return word
	}
	return another
}

// thrashed reports whether it is time to empty the cache.
func (c *cache) thrashed() bool { return c.full && c.simulated >= patience*c.learned }

// walk matches the rest of a text after the prefix.
func (p *Pattern) walk(text []byte, at int) bool {
	c := &p.cache
	if c.thrashed() {
		p.empty()
	}
	row := int(firstRow)
	for {
		next, column, width := c.next, 0, 0
		for at < len(text) {
			column, width = int(c.bytes[text[at]]), 1
			if column == 0 {
				column, width = c.beyond(text, at)
			}
			to := next[row+column]
			if to < firstRow {
				break
			}
			row = int(to)
			at += width
		}
		if at == len(text) {
			column, width = 0, 0
		}
		to := next[row+column]
		if to == unknown {
			to = p.learn(row, column, text, at)
		}
		switch to {
		case refused, accepted:
			return to == accepted
		case noRoom:
			return p.simulate(p.enter(row, text, at), text, at)
		}
		row = int(to)
		at += width
	}
}

// learn computes the next state of a row, and keeps it if there is room.
func (p *Pattern) learn(row, column int, text []byte, at int) (next uint16) {
	c := &p.cache
	now := p.enter(row, text, at)
	next = refused
	if at == len(text) {
		if p.matched {
			next = accepted
		}
	} else {
		clear(c.set)
		r, width := decode(text[at:])
		for _, pc := range now {
			if in := &p.program[pc]; p.takes(in, r) {
				c.put(in.y)
				next = unknown
			}
		}
		if next == unknown {
			c.set[0] |= p.last(text[:at+width])
			next = c.row()
		}
	}
	if next != noRoom {
		c.next[row+column] = next
		c.learned++
	}
	return next
}

// enter begins a step of the simulation with the targets of a row.
func (p *Pattern) enter(row int, text []byte, at int) (state []uint16) {
	c := &p.cache
	p.begin()
	state = p.now[:0]
	set := c.setOf((row - int(firstRow)) / c.count)
	for words := set[0]; words != 0; words &= words - 1 {
		set = set[1:]
		first, rest := bits.TrailingZeros64(words)<<6, set[0]
		if first == 0 {
			rest &^= lasts
		}
		for ; rest != 0; rest &= rest - 1 {
			state = p.follow(state, c.targets[first+bits.TrailingZeros64(rest)], text, at)
		}
	}
	return state
}

func (c *cache) setOf(index int) []uint64 {
	start := 0
	if index > 0 {
		start = int(c.ends[index-1])
	}
	return c.sets[start:c.ends[index]]
}

// row returns the row of the set. If there is none, it makes the row while there is room.
func (c *cache) row() uint16 {
	c.pack()
	count := len(c.ends)
	if len(c.slots) < 2*count+2 && !c.full {
		c.slots = make([]uint16, 2*len(c.slots))
		for i := range count {
			if slot := c.find(c.setOf(i)); slot != nil {
				*slot = uint16(i + 1)
			}
		}
	}
	slot := c.find(c.packed)
	if slot != nil && *slot != 0 {
		return c.place(int(*slot) - 1)
	}
	if c.full = c.full || slot == nil || c.size()+2*(c.count+1)+8*len(c.packed) > c.room; c.full {
		return noRoom
	}
	*slot = uint16(count + 1)
	c.sets = append(c.sets, c.packed...)
	c.ends = append(c.ends, uint16(len(c.sets)))
	for range c.count {
		c.next = append(c.next, unknown)
	}
	return c.place(count)
}

// size returns the size of all rows, in bytes.
func (c *cache) size() int { return 2*(len(c.next)+len(c.ends)+len(c.slots)) + 8*len(c.sets) }

// pack leaves out the words of the set that are 0.
func (c *cache) pack() {
	c.packed = append(c.packed[:0], 0)
	for i, word := range c.set {
		if word != 0 {
			c.packed[0] |= 1 << i
			c.packed = append(c.packed, word)
		}
	}
}

func (c *cache) place(index int) uint16 { return firstRow + uint16(index*c.count) }

// find returns the slot of a packed set, or the free slot where it belongs. It returns nil if too
// many other sets are there.
func (c *cache) find(set []uint64) *uint16 {
	hash := uint64(0)
	for _, word := range set {
		high, low := bits.Mul64(hash^word, 0x9e3779b97f4a7c15)
		hash = high ^ low
	}
	for range maxProbes {
		slot := &c.slots[hash&uint64(len(c.slots)-1)]
		if *slot == 0 || slices.Equal(c.setOf(int(*slot)-1), set) {
			return slot
		}
		hash++
	}
	return nil
}

// Fits reports whether the cache has room for all states that any text can reach. If so, a
// character takes at most one step of the simulation, the first time. Fits allocates, and takes as
// long as a text that reaches all states.
func (p *Pattern) Fits() bool {
	if p.literal {
		return true
	}
	c := &p.cache
	if c.count == 0 {
		return false
	}
	p.empty()
	for index := 0; index < len(c.ends); index++ {
		for column := range c.count {
			text, at := p.example(index, column)
			if p.learn(int(c.place(index)), column, text, at) == noRoom {
				return false
			}
		}
	}
	return true
}

// example returns a text that has a character of a column at at. The character before it is of the
// kind that the row's state has.
func (p *Pattern) example(index, column int) (text []byte, at int) {
	c := &p.cache
	last := another
	if set := c.setOf(index); set[0]&1 != 0 {
		last = set[1] & lasts
	}
	text = append(text, [...]string{another: " ", word: "a", newline: "\n", none: ""}[last]...)
	at = len(text)
	for i := range c.parts {
		if int(c.parts[i].column) == column {
			return append(text, string(c.parts[i].start)...), at
		}
	}
	return text, at
}

// Steps returns the most instructions that a text of size bytes can run through if the cache knows
// none of its characters.
func (p *Pattern) Steps(size int) int { return size * len(p.program) }
