package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/file"
)

// A file that others cut short while it is open takes no hits. Each call says why, and so does Close, and none
// waits for ever. What was counted can still be read.
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
			path := filepath.Join(t.TempDir(), "weir.db")
			s := openAt(t, path, file.Options{Now: atEpoch, NoSync: true})
			pushOf(t, s, 1, 0, keys)
			must.OK(t, test.do(path))
			for range 2 {
				if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), test.pushed) {
					t.Errorf("pinged: %v, want %q", err, test.pushed)
				}
				if _, free := s.DiskBytes(); free < 0 {
					t.Errorf("%d bytes are free", free)
				}
			}
			counters := 0
			must.OK(t, s.Counters(t.Context(), "shop", nil, func(store.LimitCounter) error {
				counters++
				return nil
			}))
			must.Equal(t, counters, keys, "counters that can be read")
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), test.atTheEnd) {
				t.Errorf("closed: %v, want %q", err, test.atTheEnd)
			}
		})
	}
}
