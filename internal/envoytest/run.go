package envoytest

import (
	"testing"

	"weir/internal/must"
)

// Run is [Start] until the test ends. It fails the test if the process ends before. The folder is
// one of the test, and the binary the newest, unless the options have others.
func Run(t testing.TB, o Options) *Envoy {
	t.Helper()
	if o.Binary.Path == "" {
		o.Binary = must.Get(Newest())(t)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	e := must.Get(Start(t.Context(), o))(t)
	t.Cleanup(func() { must.Report(t, e.Close()) })
	return e
}

// RunFiles is [Run] of an Envoy that reads its listeners and clusters from files. It has none yet.
func RunFiles(t testing.TB, o Options) (*Envoy, *Files) {
	t.Helper()
	o.Dir = t.TempDir()
	files, err := NewFiles(o.Dir)
	if err == nil {
		o.Bootstrap, err = files.Bootstrap(nil)
	}
	must.OK(t, err)
	return Run(t, o), files
}
