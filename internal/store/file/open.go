package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"weir/internal/store/memory"
)

// A file has a bucket with its format, and buckets of package memory's records. A checksum precedes
// each record, because bbolt has none for the content of its pages. Records of usage and changes,
// and of senders that advance hits, are in separate buckets, which older versions ignore. There are
// no more than four buckets: bbolt could split the root page of five.
var (
	aboutBucket   = []byte("weir")
	recordsBucket = []byte("records")
	usedBucket    = []byte("used")
	fleetBucket   = []byte("fleet")
	formatKey     = []byte("format")
)

// Format is the version of the file and its records.
const Format = memory.RecordsFormat

var (
	errInUse = errors.New("another process has it open: only one weir serve can use a file at a time")
	// Creating the directory here would hide a volume that is not mounted.
	errNoDirectory = errors.New("its directory does not exist: create it first")
	errEmpty       = errors.New("it is empty, so it is not a store of Weir: remove it, or replace it with a copy of the store")
	errOther       = errors.New("it is not a store of Weir, and was not changed: choose another file")
	// Errors that wrap errDamaged add where the damage is.
	errDamaged = errors.New("it is damaged, and was not changed: replace it with a copy of the store, or move it away to start with empty counters")
)

// openFile opens or creates a file, and restores its records.
func openFile(path string, into *memory.Store) (db *bolt.DB, err error) {
	before, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	switch {
	case isNew:
	case err != nil:
		return nil, plain(err)
	case !before.Mode().IsRegular():
		return nil, errOther
	case before.Size() == 0:
		return nil, errEmpty
	}
	// bbolt panics on damaged pages, and reading a missing page faults.
	err = guarded(func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Nanosecond, FreelistType: bolt.FreelistMapType})
		switch {
		case err == nil:
			return restore(db, path, into)
		case errors.Is(err, bolterrors.ErrTimeout):
			return errInUse
		case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch):
			return errOther
		case errors.Is(err, fs.ErrNotExist):
			return errNoDirectory
		case errors.As(err, new(syscall.Errno)):
			return plain(err)
		default:
			return fmt.Errorf("%w (%w)", errDamaged, err)
		}
	})
	if err == nil && isNew {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil && isNew && !errors.Is(err, errInUse) {
		err = errors.Join(err, remove(path)) // an empty file could not be opened again
	}
	if err != nil && db != nil {
		db, err = nil, errors.Join(err, db.Close())
	}
	return db, err
}

// syncDirectory waits until the disk has the directory entry of a new file, on file systems that
// can wait for that.
func syncDirectory(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return plain(err)
	}
	if err = dir.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}

// remove removes a file if it exists.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return plain(err)
	}
	return nil
}

// plain returns an error without its path, which [Error] has already.
func plain(err error) error {
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// restore reads a file's records, or writes the format and the buckets of a new file.
func restore(db *bolt.DB, path string, into *memory.Store) (err error) {
	pages, err := os.Open(path)
	if err != nil {
		return plain(err)
	}
	defer func() { err = errors.Join(err, pages.Close()) }()
	isNew := false
	err = db.View(func(tx *bolt.Tx) error {
		if err := checkInline(pages, uint64(tx.Cursor().Bucket().Root()), db.Info().PageSize); err != nil {
			return err
		}
		first, _ := tx.Cursor().First()
		if isNew = first == nil; isNew {
			return nil
		}
		about, records := tx.Bucket(aboutBucket), tx.Bucket(recordsBucket)
		if about == nil || records == nil {
			return errOther
		}
		switch has, err := strconv.Atoi(string(about.Get(formatKey))); {
		case err != nil:
			return fmt.Errorf("%w (its format is not a number)", errDamaged)
		case has != Format:
			return fmt.Errorf("it has format %d, of another version of Weir, and this version reads %d: start that version, or choose another file", has, Format)
		}
		var damaged error
		if err := into.Restore(checked(&damaged, records, tx.Bucket(usedBucket), tx.Bucket(fleetBucket))); err != nil || damaged != nil {
			return fmt.Errorf("%w (%w)", errDamaged, errors.Join(damaged, err))
		}
		return nil
	})
	if err != nil || !isNew {
		return err
	}
	return db.Update(func(tx *bolt.Tx) error {
		about, err := tx.CreateBucket(aboutBucket)
		if err != nil {
			return err
		}
		if _, err := tx.CreateBucket(recordsBucket); err != nil {
			return err
		}
		return about.Put(formatKey, []byte(strconv.Itoa(Format)))
	})
}

// bucketOf returns the bucket for a record's key.
func bucketOf(tx *bolt.Tx, key []byte) (*bolt.Bucket, error) {
	switch {
	case memory.IsUsed(key), memory.IsLog(key):
		return tx.CreateBucketIfNotExists(usedBucket)
	case memory.IsFleet(key):
		return tx.CreateBucketIfNotExists(fleetBucket)
	}
	return tx.Bucket(recordsBucket), nil
}

// put writes a record with its checksum, or removes it if value is nil.
func put(tx *bolt.Tx, key, value []byte) error {
	records, err := bucketOf(tx, key)
	if err != nil {
		return err
	}
	if value == nil {
		return records.Delete(key)
	}
	return records.Put(key, append(binary.BigEndian.AppendUint32(make([]byte, 0, sumBytes+len(value)), sum(key, value)), value...))
}

// update puts records in a transaction.
func update(db *bolt.DB, records iter.Seq2[[]byte, []byte]) error {
	return guarded(func() error {
		return db.Update(func(tx *bolt.Tx) error {
			for key, value := range records {
				if err := put(tx, key, value); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// guarded runs what uses the file's pages. It returns a panic of bbolt, or the fault of a page that is not
// there, as an [errDamaged]. bbolt may hold its locks for ever then.
func guarded(run func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w (%v)", errDamaged, reason)
		}
	}()
	return run()
}

const sumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// checked returns the records of a file's buckets, some of which may be nil. It stops at the first
// record with a wrong checksum, and sets damaged.
func checked(damaged *error, of ...*bolt.Bucket) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for _, records := range of {
			if records == nil {
				continue
			}
			*damaged = records.ForEach(func(key, stored []byte) error {
				if len(stored) < sumBytes || binary.BigEndian.Uint32(stored) != sum(key, stored[sumBytes:]) {
					return fmt.Errorf("record %.100q has a wrong checksum", key)
				}
				if !yield(key, stored[sumBytes:]) {
					return errors.New("the rest was not read")
				}
				return nil
			})
			if *damaged != nil {
				return
			}
		}
	}
}

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
