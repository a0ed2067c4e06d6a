package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is the least time between two checks of files in use.
	lookEvery = time.Second
	// maxFile bounds a file in bytes.
	maxFile = 1 << 20
)

// files are files with the value parsed from their contents. When the value is used, the files are
// read again, at most once in lookEvery. While they can't be read or parsed, the previous value
// stays in use: they may be half written, and are checked again.
type files[T any] struct {
	paths []string
	parse func(contents [][]byte) (T, error)
	now   func() time.Time
	log   *slog.Logger

	once   bool // a file is a pipe, which can be read only once
	said   atomic.Pointer[T]
	looked atomic.Int64

	mu       sync.Mutex // guards the fields below
	contents [][]byte   // the contents that said was parsed from
	failing  bool       // the last check has failed, and the error was logged
}

// open reads the files for the first time.
func (f *files[T]) open() error {
	f.looked.Store(f.now().UnixNano())
	f.once = f.regular() != nil
	contents, err := f.read()
	if err != nil {
		return err
	}
	said, err := f.parse(contents)
	if err != nil {
		return err
	}
	f.contents = contents
	f.said.Store(&said)
	return nil
}

func (f *files[T]) read() (contents [][]byte, err error) {
	for _, path := range f.paths {
		content, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
		contents = append(contents, content)
	}
	return contents, nil
}

// regular returns an error unless all files are regular: opening a pipe waits for a writer.
func (f *files[T]) regular() error {
	for _, path := range f.paths {
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s: want a regular file", path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadFile reads a file of up to 1 MiB. A longer file is an error, so a path without an end does no
// harm.
func ReadFile(path string) (content []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	content, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s: want at most %d bytes", path, maxFile)
	}
	return content, errors.Join(err, file.Close())
}

func (f *files[T]) get() T {
	now, last := f.now().UnixNano(), f.looked.Load()
	// The clock may have been set back.
	if ago := max(now-last, last-now); ago >= int64(lookEvery) && f.looked.CompareAndSwap(last, now) {
		f.look()
	}
	return *f.said.Load()
}

// look reads and parses the files again, unless they can be read only once.
func (f *files[T]) look() {
	if f.once {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var contents [][]byte
	err := f.regular()
	if err == nil {
		contents, err = f.read()
	}
	if err == nil && slices.EqualFunc(contents, f.contents, bytes.Equal) {
		f.failing = false
		return
	}
	var said T
	if err == nil {
		said, err = f.parse(contents)
	}
	if err != nil {
		if !f.failing {
			f.log.Error("files have changed and can't be used; their previous contents stay in use", "error", err)
		}
		f.failing = true
		return
	}
	f.contents, f.failing = contents, false
	f.said.Store(&said)
	f.log.Info("files have changed, and were read again", "files", f.paths)
}
