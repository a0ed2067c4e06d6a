// Package file is a [store.Store] in a file. It is for a single backend whose counters must survive
// a restart. Everything is also in memory, where package memory decides. A push is answered when
// the file has all of its changes: pushes that wait at the same time share a transaction and its
// wait for the disk.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/panics"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Options configure a store. The zero value is ready to use.
type Options struct {
	// MaxCounters is as in [memory.Options].
	MaxCounters int
	// MaxMemory is as in [memory.Options].
	MaxMemory int
	// Now is the store's clock; nil means time.Now.
	Now func() time.Time
	// Granter is as in [memory.Options].
	Granter store.Granter
	// NoSync is for tests. The file then survives the process, but not a failure of the machine.
	NoSync bool
}

// Store is a [store.Store]. [Open] opens one; Close it afterwards.
type Store struct {
	// The store in memory answers calls that need no file: reads, and calls that nodes repeat
	// anyway.
	*memory.Store
	db   *bolt.DB
	path string
	// own is the file that was opened; another may come to have its path.
	own   os.FileInfo
	trial *store.Trial
	// paged is how many bytes the file needs for its pages.
	paged atomic.Int64
	// behind is true while the file may lack changes, because the last transaction failed or the file
	// was moved.
	behind atomic.Bool

	mu     sync.Mutex // guards next, wake and closed
	next   *group
	wake   chan struct{}
	closed bool
	ended  chan struct{}

	// unwritten has the changes that the file lacks, by key. Only run uses it, and Close after run
	// has ended. broken, unless nil, is why they can't be written any more, and unsaved why there is no
	// other file with all that memory has. If stuck is true, bbolt may hold its locks for ever.
	unwritten       map[string][]byte
	broken, unsaved error
	stuck           bool
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.OnDisk = (*Store)(nil)
)

// group is the calls that wait for the same transaction.
type group struct {
	done chan struct{}
	err  error // valid after done is closed
}

func newGroup() *group { return &group{done: make(chan struct{})} }

// errClosed is the error of calls after Close.
var errClosed = errors.New("the store is closed")

// Open opens the store in a file, and creates the file if there is none. No other process can open
// it until Close, or the end of this process. An error is an [Error], and has left the file
// unchanged.
func Open(path string, o Options) (*Store, error) {
	kept := memory.New(memory.Options{MaxCounters: o.MaxCounters, MaxMemory: o.MaxMemory, Now: o.Now, Tracked: true, Granter: o.Granter})
	db, err := openFile(path, kept)
	if err != nil {
		return nil, &Error{path, err}
	}
	own, err := os.Stat(path)
	if err != nil {
		return nil, &Error{path, errors.Join(plain(err), db.Close())}
	}
	db.NoSync, db.NoGrowSync = o.NoSync, o.NoSync
	s := &Store{
		Store: kept, db: db, path: path, own: own, trial: store.NewTrial(), next: newGroup(), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		unwritten: map[string][]byte{},
	}
	if err := s.measure(); err != nil {
		return nil, &Error{path, err}
	}
	go s.run()
	return s, nil
}

// Close writes pending changes, and closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.closed = true
	close(s.wake)
	s.mu.Unlock()
	<-s.ended
	if s.unsaved != nil {
		s.unsaved = s.save()
	}
	err := s.write()
	if !s.stuck {
		err = errors.Join(err, s.db.Close())
	}
	if err != nil {
		return s.failed("close", err)
	}
	return nil
}

// Push implements [store.Store].
func (s *Store) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if store.IsRead(p) && !p.Advance.Present {
		return s.Store.Push(ctx, p, nodes)
	}
	return change(ctx, s, "push", func() (store.Outcome, error) { return s.Store.Push(ctx, p, nodes) })
}

// Account implements [store.Store].
func (s *Store) Account(ctx context.Context, u *wire.Used) (store.Accounted, error) {
	return change(ctx, s, "account", func() (store.Accounted, error) { return s.Store.Account(ctx, u) })
}

// SetOverrides implements [store.Store].
func (s *Store) SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (version uint64, err error) {
	return change(ctx, s, "overrides", func() (uint64, error) { return s.Store.SetOverrides(ctx, namespace, from, list) })
}

// Note implements [store.Store]. Only notes of logs wait for the file.
func (s *Store) Note(ctx context.Context, topic store.Topic, namespace string, note store.Note) (nodes uint64, err error) {
	if !topic.Terms().Log {
		return s.Store.Note(ctx, topic, namespace, note)
	}
	return change(ctx, s, topic.String(), func() (uint64, error) { return s.Store.Note(ctx, topic, namespace, note) })
}

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.Push(ctx, s.trial.Next(), 1)
	return err
}

// DiskBytes implements [store.OnDisk]. It reads no page, because others may have cut the file short.
func (s *Store) DiskBytes() (size, free int64) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	info, err := os.Stat(s.path)
	if closed || err != nil { // err is of a file that was moved
		return 0, 0
	}
	return info.Size(), max(0, info.Size()-s.paged.Load()+int64(s.db.Stats().FreeAlloc))
}

// change applies a change in memory, and waits until the file has it. While the file can't be
// written, it applies nothing, so memory gets no further ahead of the file.
func change[T any](ctx context.Context, s *Store, call string, apply func() (T, error)) (done T, err error) {
	var none T
	if s.behind.Load() {
		if err := s.written(ctx); err != nil {
			return none, s.failed(call, err)
		}
	}
	if done, err = apply(); err != nil {
		return none, err
	}
	if err := s.written(ctx); err != nil {
		return none, s.failed(call, err)
	}
	return done, nil
}

func (s *Store) failed(call string, err error) error { return fmt.Errorf("file: %s: %w", call, err) }

// written waits until the file has all earlier changes.
func (s *Store) written(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	own := s.next
	select {
	case s.wake <- struct{}{}:
	default: // run will begin a transaction anyway
	}
	s.mu.Unlock()
	select {
	case <-own.done:
		return own.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run writes one transaction after the other, each for all calls that wait when it begins.
func (s *Store) run() {
	defer close(s.ended)
	for range s.wake {
		s.mu.Lock()
		own := s.next
		s.next = newGroup()
		s.mu.Unlock()
		func() {
			defer panics.Catch("a write to the file", func(err error) { own.err = err })
			if own.err = s.moved(); own.err == nil {
				own.err = s.write()
			}
		}()
		s.behind.Store(own.err != nil)
		close(own.done)
	}
}

// errMoved is the error of changes while the path is not that of the open file. Its lock does not
// keep another process from making a file at the path, and then both would count.
var errMoved = errors.New("the file was moved away or removed: move it back, or start weir serve again")

// moved returns an error if the file is not at its path any more.
func (s *Store) moved() error {
	at, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(at, s.own):
		return errMoved
	case err != nil:
		return plain(err)
	}
	return nil
}

// errCut is the error of changes after another program has made the file shorter.
var errCut = errors.New("the file was cut short by another program")

// cut returns an error if the file lacks pages.
func (s *Store) cut() error {
	at, err := os.Stat(s.path)
	if err == nil && os.SameFile(at, s.own) && at.Size() < s.paged.Load() {
		return errCut
	}
	return nil
}

// measure sets how many bytes the file needs for its pages.
func (s *Store) measure() error {
	return guarded(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			s.paged.Store(tx.Size())
			return nil
		})
	})
}

// write writes the changes to the file. If it fails, the next write tries the same changes again, unless
// the file is broken.
func (s *Store) write() error {
	for _, r := range s.Changes() {
		s.unwritten[string(r.Key)] = r.Value
	}
	if s.broken != nil {
		return s.lost()
	}
	if s.broken = s.cut(); s.broken == nil {
		if len(s.unwritten) == 0 {
			return nil
		}
		err := s.update()
		if !errors.Is(err, errDamaged) {
			return err
		}
		s.broken, s.stuck = cmp.Or(s.cut(), err), true
	}
	s.unsaved = s.save()
	return s.lost()
}

// lost is the error of changes when the file is broken.
func (s *Store) lost() error {
	if s.unsaved != nil {
		return fmt.Errorf("%w; %s can't be written: %w", s.broken, s.savedPath(), s.unsaved)
	}
	return fmt.Errorf("%w; %s has all that it had: end weir serve, and move that to its place", s.broken, s.savedPath())
}

func (s *Store) savedPath() string { return s.path + ".saved" }

// errSaved is the error of a file that must not be written over.
var errSaved = errors.New("it is there already: move it away")

// save writes all that memory has to a new file.
func (s *Store) save() error {
	if _, err := os.Stat(s.savedPath()); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(plain(err), errSaved)
	}
	part := s.savedPath() + ".part" // nobody is to take a part for all
	if err := remove(part); err != nil {
		return err
	}
	db, err := openFile(part, memory.New(memory.Options{}))
	if err != nil {
		return err
	}
	db.NoSync, db.NoGrowSync = s.db.NoSync, s.db.NoSync
	err = update(db, func(yield func(key, value []byte) bool) {
		for _, r := range s.All() {
			if r.Value != nil && !yield(r.Key, r.Value) {
				return
			}
		}
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return errors.Join(err, remove(part))
	}
	if err := os.Rename(part, s.savedPath()); err != nil {
		return plain(err)
	}
	return syncDirectory(filepath.Dir(s.path))
}

// update has a transaction write what the file lacks.
func (s *Store) update() error {
	err := update(s.db, func(yield func(key, value []byte) bool) {
		for _, key := range slices.Sorted(maps.Keys(s.unwritten)) { // the order of the file's pages
			if !yield([]byte(key), s.unwritten[key]) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	clear(s.unwritten)
	return s.measure()
}

// Error is the reason why a file can't be opened.
type Error struct {
	Path string
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("file %s: %v", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }
