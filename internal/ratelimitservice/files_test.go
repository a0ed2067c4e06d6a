package ratelimitservice

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

func write(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

// limits is a domain whose key k has a limit.
func limits(domain, limit string) string {
	return "domain: " + domain + "\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: " + limit + "}}]"
}

// A pipe among the files is told, and not opened: that would wait for a writer.
func TestPipeAmongFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), limits("a", "10"))
	s := NewService(ServiceOptions{Counters: NewCounters(CounterOptions{Now: newClock().now})})
	var log bytes.Buffer
	source := &Source{Path: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}
	must.OK(t, source.Load(s))
	pipe := filepath.Join(dir, "b.yaml")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	for range 3 {
		source.look(s)
	}
	if n := strings.Count(log.String(), "b.yaml: want a regular file or a folder"); n != 1 || s.Domains() != 1 {
		t.Errorf("it is told %d times, and there are %d domains:\n%s", n, s.Domains(), log.String())
	}
	_, err := ReadFiles(pipe)
	must.Fails(t, err, "a pipe")
	// A link to a file is fine.
	must.OK(t, os.Remove(pipe))
	must.OK(t, os.Symlink("a.yaml", pipe))
	must.Equal(t, len(must.Get(ReadFiles(pipe))(t)), 1, "a link is read as")
}

// TestConfigMap reads a folder as Kubernetes mounts one: links to a link that is moved.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := func(to, name string) {
		t.Helper()
		must.OK(t, os.Symlink(to, filepath.Join(dir, "new")))
		must.OK(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)))
	}
	write(t, filepath.Join(dir, "..1", "a.yaml"), limits("a", "10"))
	write(t, filepath.Join(dir, "..1", "b.yaml"), limits("b", "10"))
	link("..1", "..data")
	link("..data/a.yaml", "a.yaml")
	link("..data/b.yaml", "b.yaml")
	link(".", "round")
	write(t, filepath.Join(dir, "more", "c.yaml"), limits("c", "10"))

	s := NewService(ServiceOptions{Counters: NewCounters(CounterOptions{Now: newClock().now})})
	var log bytes.Buffer
	source := &Source{Path: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}
	must.OK(t, source.Load(s))
	must.Equal(t, s.Domains(), 3, "domains")
	ask := func(want string) {
		t.Helper()
		must.Equal(t, told(t, s, request("a", "k=1")), want, "")
	}
	look := func(want bool) {
		t.Helper()
		must.Equal(t, source.look(s), want, "the look has changed something")
	}
	ask("OK | OK 9/10 MINUTE 45s")
	look(false)

	write(t, filepath.Join(dir, "..2", "a.yaml"), limits("a", "20"))
	write(t, filepath.Join(dir, "..2", "b.yaml"), limits("b", "20"))
	link("..2", "..data")
	look(false) // it may be written right now
	ask("OK | OK 8/10 MINUTE 45s")
	look(true)
	ask("OK | OK 17/20 MINUTE 45s")

	// A broken file leaves what was, and is told of once.
	write(t, filepath.Join(dir, "..2", "b.yaml"), "domain: b\ndescriptors: [{}]")
	for range 4 {
		look(false)
	}
	ask("OK | OK 16/20 MINUTE 45s")
	if said := strings.Count(log.String(), "can't be used"); said != 1 || !strings.Contains(log.String(), "b.yaml:2: descriptors[0]: want a key") {
		t.Errorf("said %d times:\n%s", said, log.String())
	}
	must.OK(t, os.Remove(filepath.Join(dir, "..data")))
	look(false)
	ask("OK | OK 15/20 MINUTE 45s")
	must.Equal(t, strings.Count(log.String(), "can't be used"), 2, "said in\n%s", log.String())

	write(t, filepath.Join(dir, "..3", "a.yaml"), limits("a", "5"))
	write(t, filepath.Join(dir, "..3", "b.yaml"), limits("b", "5"))
	link("..3", "..data")
	look(false)
	look(true)
	ask("OVER_LIMIT | OVER_LIMIT 0/5 MINUTE 45s")
}

func TestNoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Equal(t, len(must.Get(ReadFiles(dir))(t)), 0, "an empty folder")
	_, err := ReadFiles(filepath.Join(dir, "none"))
	must.Fails(t, err, "a folder that is not there")
	write(t, filepath.Join(dir, ".hidden"), "x")
	write(t, filepath.Join(dir, "one"), "y")
	if files, err := ReadFiles(dir); err != nil || len(files) != 1 || string(files[0].Text) != "y" {
		t.Errorf("a file without an ending: %v, %v", files, err)
	}
	must.Equal(t, len(must.Get(ReadFiles(filepath.Join(dir, "one")))(t)), 1, "a single file")
}

// Files that were read twice since they were written are not read again, and are once they are written.
func TestFilesAtRestAreNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, limits("d", "1"))
	info := must.Get(os.Stat(file))(t)
	s := Source{Path: dir, Log: slog.New(slog.DiscardHandler)}
	of := NewService(ServiceOptions{Counters: NewCounters(CounterOptions{Now: newClock().now})})
	must.OK(t, s.Load(of))
	for range 2 {
		must.Equal(t, s.look(of), false, "files that have not changed were used again")
	}
	// Nothing tells that this file has been written.
	write(t, file, limits("d", "2"))
	for _, written := range []time.Time{info.ModTime(), info.ModTime().Add(time.Second)} {
		must.OK(t, os.Chtimes(file, written, written))
		first, second := s.look(of), s.look(of)
		if want := !written.Equal(info.ModTime()); first || second != want {
			t.Errorf("written at %v: used %v and %v, want only the second to be %v", written, first, second, want)
		}
	}
}
