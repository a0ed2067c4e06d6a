package trust

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/must"
)

// fifo makes a pipe with a name.
func fifo(t *testing.T, path string) {
	t.Helper()
	must.OK(t, syscall.Mkfifo(path, 0o600))
}

// Tokens from a pipe are read once, and a file that has become a pipe is not opened: that would wait for a
// writer, and so would each client.
func TestPipesAreReadOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	fifo(t, pipe)
	must.OK(t, os.WriteFile(file, []byte("s3cret"), 0o600))
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte("s3cret"), 0o600) }()
	for _, path := range []string{pipe, file} {
		tokens := must.Get(ReadTokens(path, clock, slog.New(slog.NewTextHandler(&log, nil))))(t)
		if path == file {
			must.OK(t, os.Remove(file))
			fifo(t, file)
		}
		for range 3 {
			now = now.Add(2 * time.Second)
			if _, ok := tokens.Client("s3cret", nil); !ok {
				t.Errorf("%s: the token is refused", path)
			}
		}
	}
	must.OK(t, <-written)
	if n := strings.Count(log.String(), "want a regular file"); n != 1 || strings.Contains(log.String(), "pipe:") {
		t.Errorf("the log tells %d times of a file that is a pipe:\n%s", n, log.String())
	}
}
