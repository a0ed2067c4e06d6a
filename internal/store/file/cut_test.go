package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/wire"
)

// A file that others cut short while it is open takes no hits. Each call says why, and so does Close, and none
// waits for ever. What was counted can still be read, and another file has all of it.
func TestCutShort(t *testing.T) {
	const keys = 1000
	cut := func(size int64) func(path string) error {
		return func(path string) error { return os.Truncate(path, size) }
	}
	zeroed := func(path string) error {
		info, err := os.Stat(path)
		return errors.Join(err, os.Truncate(path, 0), os.Truncate(path, info.Size()))
	}
	away := func(path string) error {
		return errors.Join(os.Truncate(path, 0), os.Rename(path, path+".away"))
	}
	for name, test := range map[string]struct {
		do               func(path string) error
		pushed, atTheEnd string
	}{
		"to nothing":          {cut(0), "the file was cut short", "the file was cut short"},
		"to a part of a page": {cut(5000), "the file was cut short", "the file was cut short"},
		"to its first pages":  {cut(int64(4 * os.Getpagesize())), "the file was cut short", "the file was cut short"},
		"and grown again":     {zeroed, "it is damaged", "it is damaged"},
		"and moved away":      {away, "the file was moved away", "it is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path, o := filepath.Join(t.TempDir(), "weir.db"), file.Options{Now: atEpoch, NoSync: true}
			s := openAt(t, path, o)
			pushOf(t, s, 1, 0, keys)
			day := uint32(epoch.Unix() / 86400)
			used := wire.Used{Namespace: "shop", Sender: 9, Sequence: 5, Rows: []wire.UsedRow{{Label: wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r"}), Day: day, Hits: 5}}}
			must.Get(s.Account(t.Context(), &used))(t)
			must.Get(s.SetOverrides(t.Context(), "shop", 0, []byte("list")))(t)
			must.Get(s.Note(t.Context(), store.Changes, "shop", store.Note{Member: 3, Body: []byte("a change")}))(t)
			must.Get(store.Join(t.Context(), s, "shop", 4))(t)
			must.OK(t, test.do(path))
			for range 2 {
				must.Contains(t, fmt.Sprint(s.Ping(t.Context())), test.pushed, "pinged")
				_, free := s.DiskBytes()
				must.AtLeast(t, free, 0, "bytes that are free")
			}
			counters := 0
			must.OK(t, s.Counters(t.Context(), "shop", nil, func(store.LimitCounter) error {
				counters++
				return nil
			}))
			must.Equal(t, counters, keys, "counters that can be read")
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), test.atTheEnd) || !strings.Contains(err.Error(), path+".saved has all") {
				t.Errorf("closed: %v, want %q, and what has all", err, test.atTheEnd)
			}
			s = openAt(t, path+".saved", o)
			must.Equal(t, pushOf(t, s, 1, 0, keys).Duplicate, true, "the push is known")
			must.Equal(t, s.Size().Counters, keys, "counters")
			must.Equal(t, must.Get(s.Account(t.Context(), &used))(t).Duplicate, true, "the usage is known")
			hits := int64(0)
			must.OK(t, s.Used(t.Context(), "shop", day, day, func(r wire.UsedRow) error {
				hits += r.Hits
				return nil
			}))
			must.Equal(t, hits, 5, "used hits")
			list, _, err := s.Overrides(t.Context(), "shop", 0)
			must.OK(t, err)
			must.Equal(t, string(list), "list", "overrides")
			must.Equal(t, len(must.Get(s.Notes(t.Context(), store.Changes, "shop"))(t)), 1, "changes")
			must.Equal(t, must.Get(store.CountNodes(t.Context(), s, "shop", 5))(t), 2, "nodes, with one that asks")
			closed(t, s)
		})
	}
}

// A file that was saved before is not written over. Close saves the new one if that was moved away meanwhile.
func TestSavedBefore(t *testing.T) {
	for _, moved := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "weir.db")
		s := openAt(t, path, file.Options{Now: atEpoch, NoSync: true})
		pushOf(t, s, 1, 0, 5)
		must.OK(t, errors.Join(os.WriteFile(path+".saved", []byte("earlier"), 0o600), os.Truncate(path, 0)))
		must.Contains(t, fmt.Sprint(s.Ping(t.Context())), "weir.db.saved can't be written: it is there already", "pinged")
		want := "it is there already"
		if moved {
			must.OK(t, os.Remove(path+".saved"))
			want = "weir.db.saved has all"
		}
		must.Contains(t, fmt.Sprint(s.Close()), want, "closed")
		must.Equal(t, string(bytesOf(t, path+".saved")) == "earlier", !moved, "the earlier file is there")
	}
}
