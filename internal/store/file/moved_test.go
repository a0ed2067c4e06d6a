package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/wire"
	"weir/window"
)

func hitOf(sequence uint64) *wire.Push {
	return &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Items: []wire.Item{
		{LimitCounter: wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: wire.MaxWidthMillis}, Newest: uint64(time.Now().UnixMilli()) / wire.MaxWidthMillis, Hits: []int64{1}},
	}}
}

// While the file is not at its path, because it was moved, removed or replaced, the store takes no hits:
// another process may have a file there. When it is moved back, the store goes on, and pushes count
// once.
func TestMoved(t *testing.T) {
	for name, move := range map[string]func(path string) error{
		"moved":   func(path string) error { return os.Rename(path, path+".away") },
		"removed": func(path string) error { return errors.Join(os.Link(path, path+".away"), os.Remove(path)) },
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, []byte("another"), 0o600))
		},
		"its folder moved": func(path string) error {
			return errors.Join(os.Rename(filepath.Dir(path), filepath.Dir(path)+".away"), os.Mkdir(filepath.Dir(path), 0o700),
				os.Rename(filepath.Dir(path)+".away/weir.db", path+".away"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "in", "weir.db")
			must.OK(t, os.Mkdir(filepath.Dir(path), 0o700))
			s := openAt(t, path, file.Options{NoSync: true})
			push := func(sequence uint64) (store.Outcome, error) { return s.Push(t.Context(), hitOf(sequence), 1) }
			must.Get(push(1))(t)
			must.OK(t, move(path))
			for range 2 {
				must.Contains(t, fmt.Sprint(s.Ping(t.Context())), "the file was moved away or removed", "pinged")
				_, err := push(2)
				must.Fails(t, err, "a push")
			}
			_, err := s.Account(t.Context(), &wire.Used{Namespace: "ns", Sender: 1, Sequence: 1})
			must.Fails(t, err, "usage")
			_, err = s.SetOverrides(t.Context(), "ns", 0, nil)
			must.Fails(t, err, "a list of overrides")
			must.OK(t, os.Rename(path+".away", path))
			must.Equal(t, must.Get(push(2))(t).Answer.Totals[0].Hits[0], 2, "when the file is back")
			must.Report(t, errors.Join(s.Ping(t.Context()), s.Close()))
			s = openAt(t, path, file.Options{NoSync: true})
			must.Equal(t, must.Get(push(3))(t).Answer.Totals[0].Hits[0], 3, "opened again")
			must.Report(t, s.Close())
		})
	}
}

// A process that begins where the file was has a file of its own; the first one takes no hits then.
func TestMovedAndTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	first := openAt(t, path, file.Options{NoSync: true})
	must.OK(t, os.Rename(path, path+".away"))
	_, err := file.Open(path+".away", file.Options{})
	must.Contains(t, fmt.Sprint(err), "another process has it open", "the file that was moved away")
	second := openAt(t, path, file.Options{NoSync: true})
	_, err = first.Push(t.Context(), hitOf(1), 1)
	must.Fails(t, err, "a push to the one that had the file first")
	_, err = second.Push(t.Context(), hitOf(1), 1)
	must.Report(t, err)
	must.Report(t, errors.Join(first.Close(), second.Close()))
}
