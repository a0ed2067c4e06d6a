package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

// The file has a bucket about itself, with its format, and one of records. That has what package memory
// makes of them, each behind its checksum: the engine has none for what is in its pages. Records of
// what keys have used are in a bucket of their own, and so are those of nodes that advance hits: older
// versions pass over these.
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
	errInUse = errors.New("another process has it open: a file is one weir serve's at a time")
	// A directory that is made in passing would hide that a volume is not mounted.
	errNoDirectory = errors.New("there is no such directory: make it first")
	errEmpty       = errors.New("it is empty, and so no store of Weir: remove it, or put a copy of the store in its place")
	errOther       = errors.New("it is no store of Weir, and is left as it is: name another file")
	// errDamaged is followed by where.
	errDamaged = errors.New("it is damaged, and is left as it is: put a copy of the store in its place, or move it away for counters that begin anew")
)

// openFile opens a file, and restores what it has.
func openFile(path string, into *memory.Store) (db *bolt.DB, err error) {
	// The engine panics at what it can't make sense of, and a page that is missing faults.
	isNew := false
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w (%v)", errDamaged, reason)
		}
		if err != nil && isNew && !errors.Is(err, errInUse) {
			err = errors.Join(err, remove(path)) // rather than have it empty
		}
		if err != nil && db != nil {
			db, err = nil, errors.Join(err, db.Close())
		}
	}()
	before, err := os.Stat(path)
	switch isNew = errors.Is(err, fs.ErrNotExist); {
	case isNew:
	case err != nil:
		return nil, plain(err)
	case !before.Mode().IsRegular():
		return nil, errOther
	case before.Size() == 0:
		return nil, errEmpty
	}
	db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Nanosecond, FreelistType: bolt.FreelistMapType})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, errInUse
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, errOther
	case errors.Is(err, fs.ErrNotExist):
		return nil, errNoDirectory
	case err != nil && errors.As(err, new(syscall.Errno)):
		return nil, plain(err)
	case err != nil:
		return nil, fmt.Errorf("%w (%w)", errDamaged, err)
	}
	if err := restore(db, path, into); err != nil || !isNew {
		return db, err
	}
	return db, syncDirectory(filepath.Dir(path))
}

// syncDirectory waits until the disk knows that a new file is there, where a file system does that.
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

// remove removes a file that may not be there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return plain(err)
	}
	return nil
}

// plain is an error without the path, which is told once.
func plain(err error) error {
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// restore reads a file, and makes a new one a store.
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
			return fmt.Errorf("%w (its format is no number)", errDamaged)
		case has != Format:
			return fmt.Errorf("it has format %d, of another version of Weir, and this one reads %d: start that version, or name another file", has, Format)
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

// buckets are those of records, in a transaction.
type buckets struct{ tx *bolt.Tx }

// of is the bucket of a record.
func (b buckets) of(key []byte) (*bolt.Bucket, error) {
	switch {
	case memory.IsUsed(key):
		return b.tx.CreateBucketIfNotExists(usedBucket)
	case memory.IsFleet(key):
		return b.tx.CreateBucketIfNotExists(fleetBucket)
	}
	return b.tx.Bucket(recordsBucket), nil
}

// update is a transaction on the records.
func update(db *bolt.DB, run func(buckets) error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w (%v)", errDamaged, reason)
		}
	}()
	return db.Update(func(tx *bolt.Tx) error { return run(buckets{tx}) })
}

const sumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// put writes a record, or removes it if there is no value.
func put(records *bolt.Bucket, key, value []byte) error {
	if value == nil {
		return records.Delete(key)
	}
	return records.Put(key, append(binary.BigEndian.AppendUint32(make([]byte, 0, sumBytes+len(value)), sum(key, value)), value...))
}

// checked are the records of a file's buckets, of which some may be nil, until one is found that is not
// as it was written.
func checked(damaged *error, of ...*bolt.Bucket) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for _, records := range of {
			if records == nil {
				continue
			}
			*damaged = records.ForEach(func(key, stored []byte) error {
				if len(stored) < sumBytes || binary.BigEndian.Uint32(stored) != sum(key, stored[sumBytes:]) {
					return fmt.Errorf("record %.100q has another checksum", key)
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
