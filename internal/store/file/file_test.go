package file_test

import (
	"path/filepath"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/storetest"
)

func openAt(t testing.TB, path string, o file.Options) *file.Store {
	t.Helper()
	return must.Get(file.Open(path, o))(t)
}

// open opens a new store, and closes it at the test's end.
func open(t testing.TB, now func() time.Time) store.Store {
	t.Helper()
	s := openAt(t, filepath.Join(t.TempDir(), "weir.db"), file.Options{Now: now, NoSync: true})
	t.Cleanup(func() { must.Report(t, s.Close()) })
	return s
}

func TestStore(t *testing.T)      { storetest.Run(t, open) }
func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }
