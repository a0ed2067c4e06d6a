package file

import (
	"encoding/binary"
	"fmt"
	"io"
)

// bbolt keeps a small bucket inside the page that names it. To read such a bucket, it copies that
// part of the page into Go's memory, and follows the offsets there without checking them.
// checkInline checks them first: with a damaged offset, bbolt would read other memory of the
// process.
//
// In bbolt's layout, a page is a header, elements, and then keys and values at the offsets in the
// elements.
const (
	pageHeaderBytes   = 16 // page number, 8 bytes; flags, 2; count of elements, 2; count of overflow pages, 4
	elementBytes      = 16 // flags, offset from the element, lengths of key and value, 4 bytes each
	bucketHeaderBytes = 16 // number of its root page, 0 if it is inline; a sequence

	leafPage      = 0x02
	bucketElement = 0x01
)

// checkInline checks all inline buckets in the root page.
func checkInline(file io.ReaderAt, number uint64, pageSize int) error {
	page := make([]byte, pageSize)
	if _, err := file.ReadAt(page, int64(number)*int64(pageSize)); err != nil {
		return fmt.Errorf("%w (its root page: %w)", errDamaged, plain(err))
	}
	// A root with four buckets needs no overflow page.
	if binary.LittleEndian.Uint32(page[12:]) != 0 {
		return fmt.Errorf("%w (its root page has overflow pages)", errDamaged)
	}
	return eachElement(page, func(flags uint32, value []byte) error {
		switch {
		case flags&bucketElement == 0:
			return nil
		case len(value) < bucketHeaderBytes:
			return fmt.Errorf("%w (a bucket of %d bytes)", errDamaged, len(value))
		case binary.LittleEndian.Uint64(value) != 0:
			return nil // the bucket has its own pages
		}
		return eachElement(value[bucketHeaderBytes:], func(uint32, []byte) error { return nil })
	})
}

// eachElement calls each for the elements of a leaf page. It returns an error if an element, a key
// or a value reaches beyond the page.
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
