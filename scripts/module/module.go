// Command module changes the module path of the repository: in go.mod, in every import, and in every page and setting that
// names a package.
//
//	go run ./scripts/module example.com/owner/weir
//
// If the path names an owner, as on code hosts, .github/CODEOWNERS gets that owner too.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "module: want a path: make module MODULE=example.com/owner/weir")
		os.Exit(2)
	}
	if err := move(".", os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "module: %v\n", err)
		os.Exit(1)
	}
}

var (
	valid   = regexp.MustCompile(`^[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*$`)
	skipped = []string{".git", "dist", "node_modules"}
)

// move changes the module path of the repository in a folder.
func move(root, to string) error {
	if !valid.MatchString(to) {
		return fmt.Errorf("want a module path such as example.com/owner/weir, got %.80q", to)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	from := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(mod)
	if from == nil {
		return errors.New("go.mod names no module")
	}
	all, err := files(root)
	if err != nil {
		return err
	}
	old, folders := regexp.QuoteMeta(string(from[1])), foldersOf(all)
	for i := range folders {
		folders[i] = regexp.QuoteMeta(folders[i])
	}
	// A package's name is no part of a longer path: dist/weir/config is no package.
	packages := regexp.MustCompile(`(^|[^\w./@~-])` + old + `/(` + strings.Join(folders, "|") + `)\b`)
	itself := regexp.MustCompile(`(?m)(^(?:(?:module|require|replace) |\t)|\bpkg: )` + old + `([ ,}]|$)`)
	owner := regexp.MustCompile(`(?m)^\* @\S+$`)
	for _, name := range all {
		file := filepath.Join(root, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		// Adjacent matches share the character between them, so a second pass finds those that the
		// first has skipped.
		moved := text
		for range 2 {
			moved = packages.ReplaceAll(moved, []byte("${1}"+to+"/${2}"))
		}
		if base := filepath.Base(name); base == "go.mod" || base == ".golangci.yml" {
			moved = itself.ReplaceAll(moved, []byte("${1}"+to+"${2}"))
		}
		if parts := strings.Split(to, "/"); filepath.Base(name) == "CODEOWNERS" && len(parts) > 2 {
			moved = owner.ReplaceAll(moved, []byte("* @"+parts[1]))
		}
		if bytes.Equal(moved, text) {
			continue
		}
		if err := os.WriteFile(file, moved, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// files returns the names of all files under a folder, without generated and fetched folders.
func files(root string) (names []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(skipped, entry.Name()) && entry.IsDir():
			return fs.SkipDir
		case !entry.Type().IsRegular() || entry.Name() == ".git":
			return nil
		}
		name, err := filepath.Rel(root, path)
		names = append(names, name)
		return err
	})
	return names, err
}

// foldersOf returns the first folder of each name, once.
func foldersOf(names []string) (folders []string) {
	for _, name := range names {
		if folder, _, within := strings.Cut(filepath.ToSlash(name), "/"); within && !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}
