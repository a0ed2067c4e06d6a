package file_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

var epoch, atEpoch = storetest.Epoch, storetest.AtEpoch

func closed(t testing.TB, s *file.Store) {
	t.Helper()
	must.Report(t, s.Close())
}

// crashing is a store whose process is killed before every third push. The next process continues
// with the file as it was then, or if that is cut short instead, with what the store has saved.
type crashing struct {
	*file.Store
	t      testing.TB
	path   string
	now    func() time.Time
	pushes int
	cut    bool
}

func (c *crashing) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if c.pushes++; c.pushes%3 == 0 {
		c.crash()
	}
	return c.Store.Push(ctx, p, nodes)
}

func (c *crashing) crash() {
	c.t.Helper()
	if c.cut {
		must.OK(c.t, os.Truncate(c.path, 0))
		must.Equal(c.t, c.Close() != nil, true, "closing a file that was cut short fails")
		must.OK(c.t, os.Rename(c.path+".saved", c.path))
	} else {
		left := bytesOf(c.t, c.path)
		closed(c.t, c.Store)
		must.OK(c.t, os.WriteFile(c.path, left, 0o600))
	}
	c.Store = openAt(c.t, c.path, file.Options{Now: c.now, NoSync: true})
}

// A store whose process is killed between pushes behaves like a store that runs on.
func TestCrashes(t *testing.T) { testCrashes(t, false) }

// So does one that continues with what was saved of a file that others have cut short.
func TestSaved(t *testing.T) { testCrashes(t, true) }

func testCrashes(t *testing.T, cut bool) {
	a := &storetest.Alike{
		Exact:  func(now func() time.Time) store.Store { return memory.New(memory.Options{Now: now}) },
		Widths: []uint64{1, 1000, 59_999, 86_400_000, wire.MaxWidthMillis}, Resolution: time.Nanosecond,
	}
	c := &crashing{t: t, path: filepath.Join(t.TempDir(), "weir.db"), now: a.Now, cut: cut}
	c.Store = openAt(t, c.path, file.Options{Now: a.Now, NoSync: true})
	defer func() { closed(t, c.Store) }()
	a.Others = map[string]store.Store{"file": c}
	a.RunSeeds(t, 20)
}

// pushOf pushes a hit for each of a number of new keys.
func pushOf(t testing.TB, s store.Store, sequence uint64, first, keys int) store.Outcome {
	t.Helper()
	p := &wire.Push{Namespace: "shop", Sender: 7, Sequence: sequence, Floor: sequence}
	for key := first; key < first+keys; key++ {
		id := wire.ID{byte(key), byte(key >> 8), byte(key >> 16)}
		c := wire.LimitCounter{ID: id, Kind: uint8(window.FixedWindow), WidthMillis: 86_400_000}
		p.Items = append(p.Items, wire.Item{LimitCounter: c, Newest: store.NumberAt(c, uint64(epoch.UnixNano())), Hits: []int64{1}})
	}
	return must.Get(s.Push(t.Context(), p, 1))(t)
}

// Overrides and nodes survive the process too, and expired records don't.
func TestRestart(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "weir.db"), epoch
	o := file.Options{Now: func() time.Time { return now }}
	s := openAt(t, path, o)
	version := must.Get(s.SetOverrides(t.Context(), "shop", 0, []byte("list")))(t)
	for node := range uint64(3) {
		must.Get(store.Join(t.Context(), s, "shop", node))(t)
	}
	pushOf(t, s, 1, 0, 5)
	closed(t, s)
	must.Equal(t, s.Close() != nil, true, "a second Close fails")
	_, err := s.Push(t.Context(), store.NewTrial().Next(), 1)
	must.Fails(t, err, "a push after Close")

	s = openAt(t, path, o)
	if list, got, err := s.Overrides(t.Context(), "shop", 0); err != nil || string(list) != "list" || got != version {
		t.Errorf("overrides %q of version %d, %v; want those of version %d", list, got, err, version)
	}
	must.Equal(t, must.Get(store.CountNodes(t.Context(), s, "shop", 0))(t), 3, "nodes")
	if out := pushOf(t, s, 1, 0, 5); !out.Duplicate || out.Answer.Totals[4].Hits[0] != 1 {
		t.Errorf("got %+v, want a duplicate", out)
	}
	closed(t, s)

	now = now.AddDate(0, 1, 0)
	s = openAt(t, path, o)
	must.Equal(t, s.Size().Counters, 0, "counters after a month")
	must.Equal(t, s.Size().Senders, 0, "senders after a month")
	// The next transaction removes the expired records from the file.
	must.OK(t, s.Ping(t.Context()))
	closed(t, s)
	must.Equal(t, recordsIn(t, path, "records"), 2, "records")
}

// recordsIn returns the number of records in a file's bucket.
func recordsIn(t *testing.T, path, bucket string) (n int) {
	t.Helper()
	edit(t, path, func(tx *bolt.Tx) error {
		n = tx.Bucket([]byte(bucket)).Stats().KeyN
		return nil
	})
	return n
}

// edit changes a file in a way that no store does.
func edit(t *testing.T, path string, change func(*bolt.Tx) error) {
	t.Helper()
	db := must.Get(bolt.Open(path, 0o600, nil))(t)
	must.OK(t, errors.Join(db.Update(change), db.Close()))
}

// fileOf returns a new file with these bytes.
func fileOf(t *testing.T, text []byte) string {
	t.Helper()
	return must.File(t, filepath.Join(t.TempDir(), "weir.db"), string(text))
}

func bytesOf(t testing.TB, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

// storeOf returns the bytes of a store's file with a number of counters.
func storeOf(t *testing.T, counters int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.db")
	s := openAt(t, path, file.Options{Now: atEpoch})
	pushOf(t, s, 1, 0, counters)
	closed(t, s)
	return bytesOf(t, path)
}

// Only one process can use the file, and only its user can read it.
func TestOpenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	s := openAt(t, path, file.Options{})
	must.Equal(t, must.Get(os.Stat(path))(t).Mode(), 0o600, "a file of its user")
	var unfit *file.Error
	if _, err := file.Open(path, file.Options{}); !errors.As(err, &unfit) || !strings.Contains(err.Error(), path+": another process has it open") {
		t.Errorf("got %v", err)
	}
	closed(t, s)
	closed(t, openAt(t, path, file.Options{}))
}

// A file that is not a store, or not of this version, is not changed.
func TestOpenOthers(t *testing.T) {
	dir, whole := t.TempDir(), storeOf(t, 1000)
	edited := func(change func(*bolt.Tx) error) []byte {
		path := fileOf(t, whole)
		edit(t, path, change)
		return bytesOf(t, path)
	}
	for name, test := range map[string]struct {
		text []byte
		want string
	}{
		"nothing":      {nil, "it is empty"},
		"text":         {[]byte("limits:\n- 5\n"), "it is not a store of Weir"},
		"a larger one": {bytes.Repeat([]byte("limits:\n- 5\n"), 5000), "it is not a store of Weir"},
		"another's": {edited(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte("other"))
			return errors.Join(err, tx.DeleteBucket([]byte("weir")))
		}), "it is not a store of Weir"},
		"a later one": {edited(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("weir")).Put([]byte("format"), []byte("2"))
		}), "it has format 2, of another version of Weir, and this version reads 1"},
		"a part":           {whole[:len(whole)/2], "it is damaged"},
		"a part of a page": {whole[:5000], "it is damaged"},
		"another value": {edited(func(tx *bolt.Tx) error {
			records := tx.Bucket([]byte("records"))
			key, value := records.Cursor().First()
			value = bytes.Clone(value)
			value[len(value)-1]++
			return records.Put(key, value)
		}), "wrong checksum"},
		"no record": {edited(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("records")).Put([]byte("x"), []byte("\x00\x00\x00\x00"))
		}), "it is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path := fileOf(t, test.text)
			s, err := file.Open(path, file.Options{Now: atEpoch})
			if err == nil {
				closed(t, s)
			}
			if err == nil || !strings.HasPrefix(err.Error(), "file "+path+": ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			must.Same(t, bytesOf(t, path), test.text, "the file has changed")
		})
	}
	for path, want := range map[string]string{dir: "it is not a store of Weir", filepath.Join(dir, "none", "weir.db"): "its directory does not exist: create it first"} {
		if _, err := file.Open(path, file.Options{}); err == nil || !strings.HasSuffix(err.Error(), want) && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

// A damaged file, wherever the damage is, is opened with all that was in it, or not at all.
func TestDamaged(t *testing.T) {
	whole := storeOf(t, 500)
	random, refused := rand.New(rand.NewPCG(1, 2)), 0
	for range 300 {
		text := bytes.Clone(whole)
		// The first pages say which transaction was last. Damage there brings back the transaction
		// before.
		at := 2*os.Getpagesize() + random.IntN(len(text)-2*os.Getpagesize())
		for n := range 1 << random.IntN(8) {
			if at+n < len(text) {
				text[at+n] ^= byte(1 + random.IntN(255))
			}
		}
		s, err := file.Open(fileOf(t, text), file.Options{Now: atEpoch})
		if err != nil {
			refused++
			continue
		}
		must.Equal(t, s.Size().Counters, 500, "damaged at %d: counters, as there was no error", at)
		closed(t, s)
	}
	must.Between(t, refused, 1, 299, "refused of 300")
}

// A flood of keys does not grow the file beyond what the kept counters need.
func TestFileIsBounded(t *testing.T) {
	const most, flood = 2000, 1000
	s := openAt(t, filepath.Join(t.TempDir(), "weir.db"), file.Options{MaxCounters: most, Now: atEpoch, NoSync: true})
	defer closed(t, s)
	var early int64
	for i := range 40 {
		pushOf(t, s, uint64(i+1), i*flood, flood)
		size, free := s.DiskBytes()
		must.Between(t, free, 0, size-1, "of %d bytes, those that are free", size)
		if i == 9 {
			early = size
		}
		if i > 9 && size > early {
			t.Fatalf("after %d keys the file has %d bytes, after %d it had %d", (i+1)*flood, size, 10*flood, early)
		}
	}
	must.Equal(t, s.Size().Counters, most, "counters")
}

// With a lower bound than before, the surplus counters make room.
func TestBoundIsLowered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	s := openAt(t, path, file.Options{Now: atEpoch})
	pushOf(t, s, 1, 0, 100)
	closed(t, s)
	s = openAt(t, path, file.Options{Now: atEpoch, MaxCounters: 10})
	must.Equal(t, s.Size().Counters, 10, "counters")
	closed(t, s)
	must.Equal(t, recordsIn(t, path, "records"), 11, "records are left")
}

// A small bucket lies inside another's page. If the position of an element points outside, it is
// not read.
func TestDamagedInside(t *testing.T) {
	whole := storeOf(t, 1)
	for field, value := range map[int]uint32{4: 1 << 24, 8: 1 << 20, 12: 4096} { // the element's offset, and the lengths of key and value
		text, found := bytes.Clone(whole), 0
		for at := range text {
			if bytes.HasPrefix(text[at:], []byte("format")) {
				binary.LittleEndian.PutUint32(text[at-16+field:], value)
				found++
			}
		}
		_, err := file.Open(fileOf(t, text), file.Options{Now: atEpoch})
		if found == 0 || err == nil || !strings.Contains(err.Error(), "it is damaged") || !strings.Contains(err.Error(), "an element ends at") {
			t.Errorf("field %d, %d times: got %v", field, found, err)
		}
	}
}
