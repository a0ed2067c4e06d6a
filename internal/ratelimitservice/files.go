package ratelimitservice

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/internal/trust"
)

const (
	// lookEvery is the time between two looks at the files.
	lookEvery = time.Second / 2
	// maxFiles bounds the files of a folder.
	maxFiles = 1 << 16
)

// ReadFiles reads a file, or all files of a folder and its subfolders. It skips names that begin
// with a dot: a ConfigMap keeps its versions in such folders, and links to the files of the last
// version.
func ReadFiles(path string) (files []File, err error) {
	found, err := find(path)
	if err != nil {
		return nil, err
	}
	return read(found)
}

func read(found []found) (files []File, err error) {
	for _, f := range found {
		text, err := trust.ReadFile(f.name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{f.name, text})
	}
	return files, nil
}

// found is a file with the information that shows whether it was written or replaced since.
type found struct {
	name string
	info fs.FileInfo
}

// same reports whether a file is unchanged. Size and time alone are not enough: archives and images
// give all their files the same time.
func same(a, b found) bool {
	return a.name == b.name && a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime()) && os.SameFile(a.info, b.info)
}

// find lists the files of a path in order. It follows links, but not into a folder that it is
// listing already.
func find(path string) (files []found, err error) {
	var visit func(path string, above []fs.FileInfo) error
	visit = func(path string, above []fs.FileInfo) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			if !info.Mode().IsRegular() {
				return fmt.Errorf("%s: want a regular file or a folder", path) // opening a pipe waits for a writer
			}
			if files = append(files, found{path, info}); len(files) > maxFiles {
				return fmt.Errorf("%s: want at most %d files", path, maxFiles)
			}
			return nil
		}
		for _, folder := range above {
			if os.SameFile(folder, info) {
				return nil
			}
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if err := visit(filepath.Join(path, e.Name()), append(above, info)); err != nil {
				return err
			}
		}
		return nil
	}
	err = visit(path, nil)
	return files, err
}

// Source reads a service's configuration from files.
type Source struct {
	// Path is a file or a folder.
	Path    string
	Options Options
	Log     *slog.Logger

	// tried is the digest of the files that were tried last, and failed is the error then. seen is
	// the digest of the last look, whose files may still be being written. found are the files of
	// that look, as they were before they were read.
	tried, seen [sha256.Size]byte
	found       []found
	failed      error
	said        string
}

// Load reads the files, and makes a service use them. If they can't be used, the service keeps its
// configuration.
func (s *Source) Load(of *Service) error {
	files, err := ReadFiles(s.Path)
	if err != nil {
		return err
	}
	s.tried = digest(files)
	s.failed = adopt(files, s.Options, of, s.Path, s.Log)
	return s.failed
}

// adopt makes a service use files. from names their source in the log.
func adopt(files []File, o Options, of *Service, from string, log *slog.Logger) error {
	c, err := Read(files, o)
	if err == nil {
		err = of.Use(c)
	}
	if err != nil {
		if stats := of.options.Stats; stats != nil {
			stats.loadErrors.Add(1)
		}
		return err
	}
	for _, field := range c.Ignored {
		log.Warn("a field of the rate limit service's configuration has no effect in its place", "field", field.Error())
	}
	for _, limit := range c.Surprises {
		log.Warn("a limit of the rate limit service's configuration is hardly meant so", "limit", limit.Error())
	}
	log.Info("the descriptors were read", "from", from, "files", len(files), "domains", len(c.domains))
	return nil
}

// digest returns a hash of the names and contents of files.
func digest(files []File) [sha256.Size]byte {
	hash := sha256.New()
	for _, f := range files {
		fmt.Fprintf(hash, "%d %s %d ", len(f.Name), f.Name, len(f.Text))
		hash.Write(f.Text)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// Watch loads the files whenever they have changed, until ctx ends. After each change it calls
// changed.
func (s *Source) Watch(ctx context.Context, of *Service, changed func()) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if s.look(of) {
				changed()
			}
		}
	}
}

// look looks once at the files, and reports whether the service has a new configuration. Changed
// files are used only if they are the same at the next look, because half a file may be a
// configuration too. The reason why they can't be used is logged once. Files that were read twice
// since they were written are not read again: there may be thousands.
func (s *Source) look(of *Service) (changed bool) {
	found, err := find(s.Path)
	if err != nil {
		s.say(err)
		return false
	}
	if s.seen == s.tried && slices.EqualFunc(found, s.found, same) {
		s.say(s.failed)
		return false
	}
	files, err := read(found)
	if err != nil {
		s.say(err)
		return false
	}
	s.found = found
	look := digest(files)
	settled := look == s.seen
	if s.seen = look; look != s.tried && settled {
		s.tried = look
		s.failed = adopt(files, s.Options, of, s.Path, s.Log)
		changed = s.failed == nil
	}
	if look == s.tried {
		s.say(s.failed)
	}
	return changed
}

// say logs an error, unless it was the last that was logged.
func (s *Source) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.said {
		s.Log.Error("the descriptors have changed and can't be used; the last usable version stays in force", "path", s.Path, "error", err)
	}
	s.said = text
}
