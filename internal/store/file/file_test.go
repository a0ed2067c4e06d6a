package file_test

import (
	"path/filepath"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/storetest"
)

func openAt(t testing.TB, path string, o file.Options) *file.Store {
	t.Helper()
	s, err := file.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens a new store, and closes it at the test's end.
func open(t testing.TB, now func() time.Time) store.Store {
	t.Helper()
	s := openAt(t, filepath.Join(t.TempDir(), "weir.db"), file.Options{Now: now, NoSync: true})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T)      { storetest.Run(t, open) }
func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }
