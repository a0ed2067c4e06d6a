// Package sharedata keeps counters in the proxy's shared data, in a table of bounded size that
// loses no hits.
//
// Shared data is the only memory that the workers of a proxy share: a map with get and
// compare-and-set, without delete and without listing. So the table has a fixed number of pages
// with fixed names, by its capacity. A key is hashed with a secret of the first worker, so nobody
// can aim at a page. The hash gives the only page that may have the key's entry: one get finds it,
// and one set writes it. Flooding the table with keys therefore gets nobody a fresh quota. If a
// page is full, expired entries are removed first, and then entries of the group that takes most of
// the page, the least used first. A group that takes at most an even part of a page loses nothing
// there, whatever other groups do; a group that is alone has the whole page.
//
// Without a proxy, a [Map] serves as shared data.
//
// The table does not know what its entries mean. A write is a compare-and-set of the page that was
// read. A worker that loses a race reads and decides again. A [Table] is safe for concurrent use; a
// [Slot] is not.
package sharedata

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/dchest/siphash"
)

// Data is the proxy's shared data. Get returns a value in the memory of buffer or, if that is too
// small, in other memory, which the caller then owns. Without a buffer, the value is valid until
// the next call.
//
// Set writes value if the key's number is still cas, and reports whether it did. A missing key is
// created with any number. 0 overwrites blindly, and is never used here.
type Data interface {
	Get(key, buffer []byte) (value []byte, cas uint32, found bool)
	Set(key, value []byte, cas uint32) (written bool)
}

// CreateOnly is a number that no key has: it creates a missing key, and fails for an existing key.
const CreateOnly = 0x7fffffff

const (
	// BytesPerCounter is how many bytes of shared data a table takes per counter of its capacity,
	// names included, for entries of the usual size.
	BytesPerCounter = 96
	// countersPerPage is a compromise. A smaller page is cheaper to get and set; a larger page has
	// a more even number of keys. Fewer large counters share a page, so that it stays below
	// largePage.
	countersPerPage = 16
	largePage       = 8192
	largestPage     = 2 * largePage
	// MaxCapacity is the largest capacity of a table.
	MaxCapacity = 1 << 24
)

// Options describe a table.
type Options struct {
	// Namespace names the table: tables of different namespaces share nothing.
	Namespace string
	// Capacity is how many counters the table has space for, from 1 to MaxCapacity.
	Capacity int
	// BytesPerCounter is the memory for each counter on average, at least the constant of the same
	// name.
	BytesPerCounter int
	// Salt goes into the hash of keys: keys with different salts have different entries.
	Salt [2]uint64
	// Lends is the map that is the data, if this table alone uses it; otherwise nil. See [Table.Borrow].
	Lends Lender
}

// Table is a bounded table of entries in shared data.
type Table struct {
	data     Data
	k0, k1   uint64
	salt     [2]uint64
	pages    uint32
	capacity int
	// perCounter is the memory for each counter, and pageBytes what that makes of a page, without larger counters of others.
	perCounter, pageBytes int
	sizes                 Record // the most memory for a counter that anybody has opened the table with
	name                  []byte // name of a page, without its number
	lender                Lender // the data, if they lend pages
}

const (
	// Format is the version of tables and pages. It is part of their names, so different formats
	// neither read nor write each other's data. Any change of either takes a new number.
	Format     = 2
	prefix     = "weir" + string('0'+rune(Format)) + ":"
	headerSize = 1 + 16 + 4
	numberSize = 3 // length of a page's number in its name, in bytes
)

// ErrUnavailable means that shared data can't be written.
var ErrUnavailable = errors.New("shared data can't be written")

// Open finds the namespace's table, or makes it. The first to open it decides its number of pages,
// and its secret, which comes from random. A later Open with another capacity gets larger or
// smaller pages. The error is [ErrUnavailable].
func Open(data Data, options Options, random func() uint64) (*Table, error) {
	t := newTable(data, options.Namespace)
	t.salt = options.Salt
	key := t.name[:len(t.name)-1]
	capacity := max(1, min(options.Capacity, MaxCapacity))
	perCounter := max(options.BytesPerCounter, BytesPerCounter)
	perPage := max(2, min(countersPerPage, largePage/perCounter))
	record := Record{data: data, key: key}
	record.Update(nil, func(value []byte) ([]byte, bool) {
		if t.readHeader(value) {
			return nil, false
		}
		header := make([]byte, headerSize)
		header[0] = Format
		binary.LittleEndian.PutUint64(header[1:], random())
		binary.LittleEndian.PutUint64(header[9:], random())
		binary.LittleEndian.PutUint32(header[17:], uint32(max(1, capacity/perPage)))
		return header, true
	})
	if value, _ := record.Read(nil); !t.readHeader(value) {
		return nil, ErrUnavailable
	}
	t.sizes = NewRecord(data, options.Namespace, "counter bytes")
	t.sizes.Update(nil, func(value []byte) ([]byte, bool) {
		return binary.LittleEndian.AppendUint32(nil, uint32(perCounter)), perCounter > sizeIn(value)
	})
	t.capacity, t.perCounter = capacity, perCounter
	t.pageBytes = t.bytesFor(t.perCounter)
	if t.lender = options.Lends; t.lender != nil {
		t.lender.lend(t)
	}
	return t, nil
}

// bytesFor returns how long a page may be if each counter takes so many bytes. It is rounded down, so that all pages together
// stay within the bound. A page is copied by each get, so it must not be huge, even if the table was made for a far smaller
// capacity.
func (t *Table) bytesFor(perCounter int) int {
	return max(1, min(t.capacity*perCounter/int(t.pages), max(largestPage, 4*perCounter))-len(t.name)-numberSize)
}

// most returns how long a page may be in all: others may have opened the table with larger counters.
//
//go:noinline
func (t *Table) most() int {
	if t.lender != nil {
		return t.pageBytes // nobody else has opened it
	}
	value, _ := t.sizes.Read(nil)
	return max(t.pageBytes, t.bytesFor(sizeIn(value)))
}

// sizeIn reads a record of the bytes for a counter.
func sizeIn(value []byte) int {
	if len(value) != 4 {
		return BytesPerCounter
	}
	return int(min(binary.LittleEndian.Uint32(value), maxEntry))
}

// newTable returns a table with the name of its namespace, and of its pages without numbers.
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

// Fits reports whether the table's number of pages suits a capacity. The table may have been made
// for another, or for smaller counters: too few pages would be huge, and too many would take too
// much memory with an entry in each.
func (t *Table) Fits(capacity int) bool {
	return int(t.pages) <= capacity && capacity*t.perCounter <= int(t.pages)*max(largestPage, 4*t.perCounter)
}

// Pages returns the table's number of pages.
func (t *Table) Pages() int { return int(t.pages) }

// ID returns a random number of the table, the same for all that open it. It reveals nothing of the
// secret.
func (t *Table) ID() uint64 { return siphash.Hash(t.k0, t.k1, nil) }

// Group is a part of a table's keys, such as those of a rule. Entries of a group are never evicted
// for a group that takes more.
type Group uint32

// Group returns the group of a name. Two names have the same group with a probability of 2^-32.
func (t *Table) Group(name []byte) Group { return Group(siphash.Hash(t.k0, t.k1, name)) }

// Address is the place of a key's entry: its fingerprint, from which its page follows. The lower
// half of hi is the key's group, and the rest is its hash.
type Address struct{ lo, hi uint64 }

// Address returns the address of a key in a group. Two keys have the same address with a
// probability of 2^-96. Without the table's secret nobody can tell which keys share a page.
func (t *Table) Address(g Group, key []byte) Address {
	lo, hi := siphash.Hash128(t.k0^t.salt[0], t.k1^t.salt[1], key)
	return Address{lo: lo, hi: hi&^math.MaxUint32 | uint64(g)}
}

func (a Address) group() Group { return Group(a.hi) }

// Beside returns the address of one of a key's further entries, by its number. It is in another page.
func (a Address) Beside(number uint32) Address {
	return Address{lo: ^a.lo, hi: a.hi ^ uint64(number)*0x9e3779b9<<32}
}

// Hash returns a hash of the address, for the caller's own tables.
func (a Address) Hash() uint64 { return a.lo }

// page scales the upper half of hi to the number of pages.
func (t *Table) page(a Address) uint32 {
	return uint32((a.hi >> 32) * uint64(t.pages) >> 32)
}

// maxAttempts bounds loops of compare-and-set, which could otherwise hang the worker. That many
// failures take some 10 ms. With four workers on one key, at most 40 % of attempts fail, so the
// bound is never reached. Even a worker that is preempted at each of its writes, as in a test,
// should still decide correctly.
const maxAttempts = 10_000

// Attempts is how often to read, decide and write before giving up.
func (t *Table) Attempts() int { return maxAttempts }
