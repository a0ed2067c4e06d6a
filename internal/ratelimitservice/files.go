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
	// lookEvery is how often files are looked at.
	lookEvery = time.Second / 2
	// maxFiles bounds a folder.
	maxFiles = 1 << 16
)

// ReadFiles reads a file, or all files of a folder and of those in it. Names that begin with a dot
// are left out: a ConfigMap keeps its versions in such folders, and links to the files of the last
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

// found is a file, and what tells that it has been written or replaced since.
type found struct {
	name string
	info fs.FileInfo
}

// same reports whether a file has stayed as it was. Its size and time alone do not tell: archives and images
// give all their files one time.
func same(a, b found) bool {
	return a.name == b.name && a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime()) && os.SameFile(a.info, b.info)
}

// find lists the files of a path in their order. Links are followed, but not twice into a folder
// that is being listed.
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

// Source is where a service has its configuration from.
type Source struct {
	// Path is a file or a folder.
	Path    string
	Options Options
	Log     *slog.Logger

	// tried tells which files were tried last, and failed what was wrong with them. seen are those
	// of the last look, which may be written right then. found are the same files before they were read.
	tried, seen [sha256.Size]byte
	found       []found
	failed      error
	said        string
}

// Load reads the files, and has a service use them. Where they can't be used, the service goes on
// with what it has.
func (s *Source) Load(of *Service) error {
	files, err := ReadFiles(s.Path)
	if err != nil {
		return err
	}
	s.tried = digest(files)
	s.failed = adopt(files, s.Options, of, s.Path, s.Log)
	return s.failed
}

// adopt has a service use files that come from somewhere.
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
		log.Warn("a field of the rate limit service's configuration does nothing where it stands", "field", field.Error())
	}
	log.Info("the descriptors were read", "from", from, "files", len(files), "domains", len(c.domains))
	return nil
}

// digest tells files apart.
func digest(files []File) [sha256.Size]byte {
	hash := sha256.New()
	for _, f := range files {
		fmt.Fprintf(hash, "%d %s %d ", len(f.Name), f.Name, len(f.Text))
		hash.Write(f.Text)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// Watch loads the files whenever they have changed, until ctx ends, and calls changed after that.
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

// look is one of Watch: it reports whether the service has another configuration now. Files that have
// changed are used when they are the same at the next look: half a file may be a configuration, too.
// Why they can't be used is said once. Files that were read twice since they were written are not read
// again: there may be thousands.
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

// say says what is wrong, unless it has just been said.
func (s *Source) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.said {
		s.Log.Error("the descriptors have changed and can't be used; what they said before holds", "path", s.Path, "error", err)
	}
	s.said = text
}
