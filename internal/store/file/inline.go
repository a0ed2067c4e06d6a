package file

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The engine keeps a small bucket inside the page that names it. To read such a bucket, it copies that part of
// the page into Go's memory, and follows the offsets in there without looking where they lead. checkInline
// looks first: an offset that damage has changed would have the engine read what the program keeps elsewhere.
//
// The layout is bbolt's: a page is a header and elements, which are followed by the keys and values at the
// offsets that the elements say.
const (
	pageHeaderBytes   = 16 // its number, 8 bytes; flags, 2; count of elements, 2; how many pages follow it, 4
	elementBytes      = 16 // flags, the offset from the element, the key's length and the value's, 4 bytes each
	bucketHeaderBytes = 16 // its first page, 0 if it is inside; a sequence

	leafPage      = 0x02
	bucketElement = 0x01
)

// checkInline looks at all buckets that are inside of a page, which is the root's.
func checkInline(file io.ReaderAt, number uint64, pageSize int) error {
	page := make([]byte, pageSize)
	if _, err := file.ReadAt(page, int64(number)*int64(pageSize)); err != nil {
		return fmt.Errorf("%w (its root page: %w)", errDamaged, plain(err))
	}
	// There are three buckets, so that no page has to follow.
	if binary.LittleEndian.Uint32(page[12:]) != 0 {
		return fmt.Errorf("%w (its root page says that others follow)", errDamaged)
	}
	return eachElement(page, func(flags uint32, value []byte) error {
		switch {
		case flags&bucketElement == 0:
			return nil
		case len(value) < bucketHeaderBytes:
			return fmt.Errorf("%w (a bucket of %d bytes)", errDamaged, len(value))
		case binary.LittleEndian.Uint64(value) != 0:
			return nil // it has pages of its own
		}
		return eachElement(value[bucketHeaderBytes:], func(uint32, []byte) error { return nil })
	})
}

// eachElement goes through a page of keys and values, each of which has to be inside of it.
func eachElement(page []byte, each func(flags uint32, value []byte) error) error {
	if len(page) < pageHeaderBytes {
		return fmt.Errorf("%w (a page of %d bytes)", errDamaged, len(page))
	}
	kind, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	if kind != leafPage || pageHeaderBytes+count*elementBytes > len(page) {
		return fmt.Errorf("%w (a page of kind %d with %d elements in %d bytes)", errDamaged, kind, count, len(page))
	}
	for i := range count {
		at := pageHeaderBytes + i*elementBytes
		e := page[at : at+elementBytes]
		key := uint64(at) + uint64(binary.LittleEndian.Uint32(e[4:]))
		value := key + uint64(binary.LittleEndian.Uint32(e[8:]))
		end := value + uint64(binary.LittleEndian.Uint32(e[12:]))
		if end > uint64(len(page)) {
			return fmt.Errorf("%w (an element ends at %d of %d bytes)", errDamaged, end, len(page))
		}
		if err := each(binary.LittleEndian.Uint32(e), page[value:end]); err != nil {
			return err
		}
	}
	return nil
}
