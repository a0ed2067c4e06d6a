package sharedata

import (
	"encoding/binary"
	"math"
)

// A page is a version byte and entries, oldest first:
//
//	length       2 bytes  of the whole entry
//	use          2 bytes  how little it may be lost: the least goes first
//	expires      4 bytes  in units of 2^30 ns (1.07 s) since the Unix epoch, rounded up
//	fingerprint  16 bytes, of which the third four are the entry's group
//	payload
//
// all little endian. Bytes of any other form are treated as an empty page.
const (
	useAt         = 2
	expiresAt     = 4
	fingerprintAt = 8
	groupAt       = fingerprintAt + 8
	payloadAt     = 24
	// usualPage is the initial memory of a slot, in bytes.
	usualPage = 512
	// maxEntry is the largest length that an entry's head can hold.
	maxEntry = 1<<16 - 1
	// MaxPayload is the longest payload that Write accepts, in bytes.
	MaxPayload = maxEntry - payloadAt
)

// Meta is everything that the table needs to choose entries to evict.
type Meta struct {
	// ExpiresNanos is the Unix time from which the entry is worthless.
	ExpiresNanos int64
	// Use ranks the unexpired entries of a group: the lowest is evicted first, and among equals the
	// newest.
	Use uint16
}

// Slot holds an entry while its worker reads it, decides, and writes it. Its memory is reused for
// many keys. It is not safe for concurrent use.
type Slot struct {
	// Recent has the pages that the slot's worker wrote last; nil to remember none.
	Recent *Recent

	table   *Table // the table that name belongs to
	address Address
	name    []byte
	page    []byte
	cas     uint32
	// recalled means that the page was remembered, not read.
	recalled bool
	// lent is the locked value that page is, and own the slot's own memory meanwhile; nil unless it was borrowed.
	lent    *versioned
	lender  Lender
	own     []byte
	at      int // of the entry in page; 0 if there is none
	evicted []byte
	shares  []share // while there are entries to evict
	corrupt bool
}

// share is the part of a page that the entries of a group take.
type share struct {
	group Group
	// bytes is the size of all its entries, including the slot's own. others is the number of
	// entries besides that.
	bytes, others int
}

// Read loads the page of an address, and reports whether it has an entry for it.
func (t *Table) Read(s *Slot, a Address) (found bool) {
	s.locate(t, a)
	s.recalled = false
	if s.page == nil {
		s.page = make([]byte, 0, usualPage) // without a buffer, Get's result would not belong to the slot
	}
	if page, cas, exists := t.data.Get(s.name, s.page); exists {
		s.page, s.cas = page, cas
		if s.Recent != nil {
			s.Recent.saw(cas)
		}
	} else {
		s.page, s.cas = s.page[:0], CreateOnly
	}
	return s.find()
}

// Recall is [Table.Read] for a page as the slot's worker last wrote it, without a get. It returns
// false if the page or the entry is not remembered; then read it. Use the result only for a
// Rewrite, because another worker may have written the page.
func (t *Table) Recall(s *Slot, a Address) (found bool) {
	r := s.Recent
	if r == nil {
		return false
	}
	number := t.page(a)
	p := &r.pages[number%recentPages]
	if p.cas == 0 || p.number != number || s.table != t {
		return false
	}
	if r.rest > 0 {
		r.rest--
		return false
	}
	s.locate(t, a)
	s.page, p.page = p.page, s.page
	s.cas, p.cas, s.recalled = p.cas, 0, true
	return s.find()
}

// locate sets the name of an address's page.
func (s *Slot) locate(t *Table, a Address) {
	s.address = a
	if s.table != t {
		s.table, s.name = t, append(append(s.name[:0], t.name...), make([]byte, numberSize)...)
	}
	putNumber(s.name, t.page(a))
	s.evicted = s.evicted[:0]
}

// putNumber writes a page's number to the end of its name.
func putNumber(name []byte, number uint32) {
	digits := (*[numberSize]byte)(name[len(name)-numberSize:])
	digits[0], digits[1], digits[2] = byte(number>>16), byte(number>>8), byte(number)
}

// find searches the slot's entry, and checks the page's form as far as it gets.
func (s *Slot) find() bool {
	s.at, s.corrupt = 0, false
	page := s.page
	if len(page) == 0 {
		s.page = append(page, Format)
		return false
	}
	at, found := search(page, s.address)
	if found {
		s.at = at
		return true
	}
	if at != len(page) {
		s.corrupt = true
		if s.lent != nil {
			page = nil // what is lent stays as it is, until the slot is written
		}
		s.page = append(page[:0], Format)
	}
	return false
}

// search returns where the entry of an address is in a page, or how far the page has a form that a table writes.
func search(page []byte, a Address) (at int, found bool) {
	if page[0] != Format {
		return 0, false
	}
	for at = 1; at <= len(page)-payloadAt; {
		head := (*[payloadAt]byte)(page[at:])
		length := int(binary.LittleEndian.Uint16(head[:]))
		if binary.LittleEndian.Uint64(head[fingerprintAt:]) == a.lo && binary.LittleEndian.Uint64(head[fingerprintAt+8:]) == a.hi &&
			length >= payloadAt && length <= len(page)-at {
			return at, true
		}
		if length < payloadAt {
			break
		}
		at += length
	}
	return at, false
}

// Corrupt reports whether the page that was read had a form that no table writes.
func (s *Slot) Corrupt() bool { return s.corrupt }

// Recalled reports whether the slot's page was remembered rather than read.
func (s *Slot) Recalled() bool { return s.recalled }

// Found reports whether Read found an entry, or a write has made one since.
func (s *Slot) Found() bool { return s.at != 0 }

// Payload returns the payload of the entry that Read found; nil if there was none. It is valid
// until the slot is written. It may be changed in place: see [Table.Rewrite].
func (s *Slot) Payload() []byte {
	if s.at == 0 {
		return nil
	}
	return s.page[s.at+payloadAt : s.at+s.length(s.at)]
}

func (s *Slot) length(at int) int { return int(binary.LittleEndian.Uint16(s.page[at:])) }

// Write replaces the entry that was read, or adds one. If the page was written since it was read,
// Write returns false; then the caller reads and decides again. After a write, [Slot.Evicted] has
// the payloads of unexpired entries that were removed.
//
// A payload longer than MaxPayload is never written: Write returns false.
func (t *Table) Write(s *Slot, payload []byte, meta Meta, now int64) (written bool) {
	length := payloadAt + len(payload)
	if length > maxEntry {
		return false
	}
	old := 0
	if s.at != 0 {
		old = s.length(s.at)
	}
	if old != length || len(s.page) > t.pageBytes {
		t.makeRoom(s, old, length, now)
	}
	head := (*[payloadAt]byte)(s.page[s.at:])
	binary.LittleEndian.PutUint16(head[:], uint16(length))
	binary.LittleEndian.PutUint16(head[useAt:], meta.Use)
	binary.LittleEndian.PutUint32(head[expiresAt:], expiry(meta.ExpiresNanos)+1)
	binary.LittleEndian.PutUint64(head[fingerprintAt:], s.address.lo)
	binary.LittleEndian.PutUint64(head[fingerprintAt+8:], s.address.hi)
	copy(s.page[s.at+payloadAt:], payload)
	return s.set()
}

// Rewrite is Write for the slot's own payload, which the caller has changed in place.
func (t *Table) Rewrite(s *Slot, meta Meta, now int64) (written bool) {
	if len(s.page) > t.pageBytes && len(s.page) > t.most() {
		return t.Write(s, append([]byte(nil), s.Payload()...), meta, now)
	}
	meta.put(s.page[s.at:])
	return s.set()
}

// set writes the slot's page, and remembers it.
func (s *Slot) set() (written bool) {
	if s.changed() {
		return true
	}
	written = s.table.data.Set(s.name, s.page, s.cas)
	r := s.Recent
	if r == nil {
		return written
	}
	if !written {
		if s.recalled {
			r.rest = restAfterWrong
		}
		return false
	}
	cas := r.next // no write gets 0, which stands for none
	r.next++
	number := s.name[len(s.name)-numberSize:]
	n := uint32(number[0])<<16 | uint32(binary.BigEndian.Uint16(number[1:]))
	p := &r.pages[n%recentPages]
	p.number, p.cas = n, cas
	p.page, s.page = s.page, p.page[:0]
	return true
}

// put writes it to the head of an entry.
func (m Meta) put(entry []byte) {
	head := (*[payloadAt]byte)(entry)
	binary.LittleEndian.PutUint16(head[useAt:], m.Use)
	binary.LittleEndian.PutUint32(head[expiresAt:], expiry(m.ExpiresNanos)+1)
}

// makeRoom makes the slot's entry length bytes long, at the cost of others if it has to. old is how
// long the entry is, 0 if it is yet to be added.
//
//go:noinline
func (t *Table) makeRoom(s *Slot, old, length int, now int64) {
	most := t.pageBytes
	if full := len(s.page)-old+length > most; full || old == 0 {
		s.trim()
		s.dropExpired(now)
	}
	if len(s.page)-old+length > most {
		// Counters that are larger than any of the table's own have room besides, as others' tables have it for them.
		if all := t.most(); all > most {
			most = min(all, most+s.longer(t.perCounter))
			s.shrink(old, length, most, t.perCounter)
		}
		s.shrink(old, length, most, maxEntry)
	}
	s.place(old, length, most)
}

// shrink evicts entries of at most each bytes until the page has at most so many with the slot's own, or none is left.
func (s *Slot) shrink(old, length, most, each int) {
	s.weigh(length, each)
	for len(s.page)-old+length > most && s.evict(each) {
	}
}

// longer is how many bytes of the page are in other entries of more than each bytes.
func (s *Slot) longer(each int) (bytes int) {
	for at := 1; at < len(s.page); at += s.length(at) {
		if n := s.length(at); at != s.at && n > each {
			bytes += n
		}
	}
	return bytes
}

// expiry converts a time to the unit of pages. From the year 2106 on, everything expires at the
// same time.
func expiry(nanos int64) uint32 { return uint32(min(max(nanos, 0)>>30, 1<<32-2)) }

// place resizes the slot's entry from old bytes to length bytes. old is 0 if the entry is yet to be
// added. A page that grows gets memory for one more, up to a size of pages.
func (s *Slot) place(old, length, most int) {
	if old == 0 {
		s.at = len(s.page)
	}
	tail := s.page[s.at+old:]
	size := s.at + length + len(tail)
	if size > cap(s.page) {
		s.page = append(make([]byte, 0, max(size, min(size+length, most))), s.page...)
	}
	s.page = s.page[:size]
	copy(s.page[s.at+length:], tail)
}

// trim cuts off the part of the page that is malformed. Read did not look beyond the entry that it
// found.
func (s *Slot) trim() {
	for at := max(1, s.at); ; at += s.length(at) {
		if rest := len(s.page) - at; rest < payloadAt || s.length(at) < payloadAt || s.length(at) > rest {
			s.page = s.page[:at]
			return
		}
	}
}

// dropExpired removes the entries that have expired, other than the slot's own.
func (s *Slot) dropExpired(now int64) {
	kept, expired := 1, expiry(now)
	for at := 1; at < len(s.page); {
		length := s.length(at)
		if at == s.at || expired < binary.LittleEndian.Uint32(s.page[at+expiresAt:]) {
			if at == s.at {
				s.at = kept
			}
			copy(s.page[kept:], s.page[at:at+length])
			kept += length
		}
		at += length
	}
	s.page = s.page[:kept]
}

// weigh computes how much of the page each group takes in entries of at most each bytes, if the slot's own entry is length
// bytes long.
func (s *Slot) weigh(length, each int) {
	s.shares = append(s.shares[:0], share{group: s.address.group(), bytes: length})
	for at := 1; at < len(s.page); at += s.length(at) {
		if at != s.at && s.length(at) <= each {
			g := s.share(s.group(at))
			g.bytes += s.length(at)
			g.others++
		}
	}
}

func (s *Slot) group(at int) Group { return Group(binary.LittleEndian.Uint32(s.page[at+groupAt:])) }

func (s *Slot) share(g Group) *share {
	for i := range s.shares {
		if s.shares[i].group == g {
			return &s.shares[i]
		}
	}
	s.shares = append(s.shares, share{group: g})
	return &s.shares[len(s.shares)-1]
}

// evict removes the victim: the least useful entry of at most each bytes, except the slot's own, in the group that takes
// most of the page in such entries. If several groups take the same, and the slot's is among them, the victim is in
// that group. It reports whether there was a victim.
func (s *Slot) evict(each int) bool {
	var most *share
	for i := range s.shares {
		if g := &s.shares[i]; g.others > 0 && (most == nil || g.bytes > most.bytes) {
			most = g
		}
	}
	if most == nil {
		return false
	}
	victim, least := 0, uint16(math.MaxUint16)
	for at := 1; at < len(s.page); at += s.length(at) {
		if at == s.at || s.group(at) != most.group || s.length(at) > each {
			continue
		}
		if use := binary.LittleEndian.Uint16(s.page[at+useAt:]); use <= least {
			victim, least = at, use
		}
	}
	most.others--
	most.bytes -= s.length(victim)
	payload := s.page[victim+payloadAt : victim+s.length(victim)]
	s.evicted = binary.LittleEndian.AppendUint16(s.evicted, uint16(len(payload)))
	s.evicted = append(s.evicted, payload...)
	s.remove(victim)
	return true
}

//go:noinline
func (s *Slot) remove(at int) {
	length := s.length(at)
	s.page = append(s.page[:at], s.page[at+length:]...)
	if s.at > at {
		s.at -= length
	}
}

// Crowded reports whether the last write removed entries that had not expired.
func (s *Slot) Crowded() bool { return len(s.evicted) > 0 }

// Evicted calls visit with the payload of each unexpired entry that the last write removed.
func (s *Slot) Evicted(visit func(payload []byte)) {
	for rest := s.evicted; len(rest) > 0; {
		end := 2 + int(binary.LittleEndian.Uint16(rest))
		visit(rest[2:end])
		rest = rest[end:]
	}
}
