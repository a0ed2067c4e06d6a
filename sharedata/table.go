// Package sharedata keeps counters in the proxy's shared data, in a table that cannot grow and
// cannot lose.
//
// Shared data is all that joins the workers of a proxy. It is a map with get and compare-and-set,
// without delete and without listing. So the table has a fixed number of pages under fixed names,
// which its capacity decides. A key is hashed with a secret that the first worker made, so that
// nobody can aim at a page. The hash names the one page where the key's entry may be: one get finds
// it, and one set writes it. So nobody buys a fresh quota by flooding the table with keys: if a
// page is full, expired entries make room first, and then those of the group that takes the most of
// the page, least use first. A group whose entries take no more than an even part of a page loses
// none there, whatever other groups do; a group that is alone has the whole page.
//
// Where there is no proxy, a [Map] is the shared data.
//
// The table knows nothing of what its entries mean. A write is a compare-and-set of the page that
// was read. A worker that loses a race reads and decides again. A [Table] may be used by several
// goroutines, a [Slot] by one.
package sharedata

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/dchest/siphash"
)

// Data is the proxy's shared data. Get returns a value in the memory of buffer. If that is too
// small, the value is in other memory, which becomes the caller's in its place. Without a buffer
// the value is valid until the next call.
//
// Set writes value if the key's number is still cas, and reports whether it did. If the key is
// missing, any number creates it. 0 overwrites blindly, and is never used here.
type Data interface {
	Get(key, buffer []byte) (value []byte, cas uint32, found bool)
	Set(key, value []byte, cas uint32) (written bool)
}

// CreateOnly is a number that no key has: it creates a missing key and is refused by an existing
// one.
const CreateOnly = 0x7fffffff

const (
	// BytesPerCounter is how many bytes of shared data a table takes for each counter of its
	// capacity, names included, if entries have the usual size.
	BytesPerCounter = 96
	// countersPerPage is a compromise. A smaller page is cheaper to get and set. A larger one evens
	// out how many keys fall on it. Fewer large counters share a page, so that it stays below
	// largePage.
	countersPerPage = 16
	largePage       = 8192
	largestPage     = 2 * largePage
	// MaxCapacity bounds a table's capacity.
	MaxCapacity = 1 << 24
)

// Options say how large a table is.
type Options struct {
	// Namespace names the table: tables of different namespaces share nothing.
	Namespace string
	// Capacity is how many counters the table is made for, from 1 to MaxCapacity.
	Capacity int
	// BytesPerCounter is how much memory each may take on average; at least the constant of that
	// name.
	BytesPerCounter int
	// Salt goes into the hash of keys: those of different salts have different entries.
	Salt [2]uint64
}

// Table is a bounded table of entries in shared data.
type Table struct {
	data      Data
	k0, k1    uint64
	salt      [2]uint64
	pages     uint32
	pageBytes int
	name      []byte // of a page, without its number
}

const (
	// Format is that of tables and pages. A change of either gives another number, which is part of
	// their names: what a table of one format has, one of another neither reads nor writes.
	Format     = 2
	prefix     = "weir" + string('0'+rune(Format)) + ":"
	headerSize = 1 + 16 + 4
	numberSize = 3 // bytes of a page's number in its name
)

// ErrUnavailable says that shared data takes no writes.
var ErrUnavailable = errors.New("shared data can't be written")

// Open finds the namespace's table or makes it. The first one to open a table decides its number of
// pages, and its secret, which comes from random. A later one with another capacity has larger or
// smaller pages.
func Open(data Data, options Options, random func() uint64) (*Table, error) {
	t := newTable(data, options.Namespace)
	t.salt = options.Salt
	key := t.name[:len(t.name)-1]
	capacity := max(1, min(options.Capacity, MaxCapacity))
	perCounter := max(options.BytesPerCounter, BytesPerCounter)
	perPage := max(2, min(countersPerPage, largePage/perCounter))
	for range maxAttempts {
		value, cas, found := data.Get(key, nil)
		if found && t.readHeader(value) {
			// Rounded down, so that all pages together keep to the bound. A page that a get copies
			// should not be huge, even if the table was made for far fewer.
			t.pageBytes = max(1, min(capacity*perCounter/int(t.pages), max(largestPage, 4*perCounter))-len(t.name)-numberSize)
			return t, nil
		}
		if !found {
			cas = CreateOnly
		}
		header := make([]byte, headerSize)
		header[0] = Format
		binary.LittleEndian.PutUint64(header[1:], random())
		binary.LittleEndian.PutUint64(header[9:], random())
		binary.LittleEndian.PutUint32(header[17:], uint32(max(1, capacity/perPage)))
		// If another worker was faster, the next round finds its table.
		data.Set(key, header, cas)
	}
	return nil, ErrUnavailable
}

// newTable has the name of a namespace's table, and its pages' without their numbers.
func newTable(data Data, namespace string) *Table {
	return &Table{data: data, name: append(append([]byte(prefix), namespace...), ':')}
}

func (t *Table) readHeader(value []byte) bool {
	if len(value) != headerSize || value[0] != Format {
		return false
	}
	t.k0 = binary.LittleEndian.Uint64(value[1:])
	t.k1 = binary.LittleEndian.Uint64(value[9:])
	t.pages = binary.LittleEndian.Uint32(value[17:])
	return t.pages >= 1 && t.pages <= MaxCapacity
}

// Fits reports whether the table's number of pages suits this capacity. The table may have been
// made for another capacity. Too few pages would be huge. Too many would be too much with an entry
// in each.
func (t *Table) Fits(capacity int) bool {
	return int(t.pages) <= capacity && capacity*BytesPerCounter <= int(t.pages)*largestPage
}

// Pages is the number of the table's pages.
func (t *Table) Pages() int { return int(t.pages) }

// ID is a random number of the table, which all that open it see. It tells nothing of its secret.
func (t *Table) ID() uint64 { return siphash.Hash(t.k0, t.k1, nil) }

// Group is a part of a table's keys, such as those of a rule. Nobody's entries make room for those
// of another group that takes more than his own does.
type Group uint32

// Group is the group of a name. Two names have the same group with a chance of 2^-32.
func (t *Table) Group(name []byte) Group { return Group(siphash.Hash(t.k0, t.k1, name)) }

// Address is where a key's entry is: its fingerprint, from which its page follows. The lower half of
// hi is the key's group, all else its hash.
type Address struct{ lo, hi uint64 }

// Address hashes a key of a group. Two keys have the same address with a chance of 2^-96. Without
// the table's secret nobody can tell which keys share a page.
func (t *Table) Address(g Group, key []byte) Address {
	lo, hi := siphash.Hash128(t.k0^t.salt[0], t.k1^t.salt[1], key)
	return Address{lo: lo, hi: hi&^math.MaxUint32 | uint64(g)}
}

func (a Address) group() Group { return Group(a.hi) }

// Hash is a number that an address has, for tables of the caller's.
func (a Address) Hash() uint64 { return a.lo }

// page scales the upper half of hi to the number of pages.
func (t *Table) page(a Address) uint32 {
	return uint32((a.hi >> 32) * uint64(t.pages) >> 32)
}

// maxAttempts bounds loops of compare-and-set, which would hang the worker otherwise. So many
// failed attempts take some 10 ms. With four workers on one key at most 40 % of them fail, so
// nobody ever comes near. But a worker that is preempted at each of its writes, as a test may have
// it, should still get the decision right.
const maxAttempts = 10_000

// Attempts is how often to read, decide and write before giving up.
func (t *Table) Attempts() int { return maxAttempts }
