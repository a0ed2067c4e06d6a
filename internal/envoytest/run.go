package envoytest

import "testing"

// Run is [Start] until the test ends. It fails the test if the process ends before. The folder is
// one of the test, and the binary the newest, unless the options have others.
func Run(t testing.TB, o Options) *Envoy {
	t.Helper()
	if o.Binary.Path == "" {
		var err error
		if o.Binary, err = Newest(); err != nil {
			t.Fatal(err)
		}
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	e, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
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
	if err != nil {
		t.Fatal(err)
	}
	return Run(t, o), files
}
