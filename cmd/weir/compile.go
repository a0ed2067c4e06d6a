package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"weir/internal/host"
)

// compileKept compiles a plugin. The code is kept in the user's cache folder, so that the next run with the
// plugin starts a second of CPU time earlier. Without such a folder, or if the code there is damaged or
// can't be written, the plugin is compiled all the same.
func compileKept(ctx context.Context, wasm []byte) (*host.Module, error) {
	caches, err := os.UserCacheDir()
	if err != nil || os.Getenv("SUDO_UID") != "" { // sudo may leave the user's folder, whose code root must not run
		return host.Compile(ctx, wasm, host.Options{})
	}
	own := filepath.Join(caches, "weir", "compiled") // a folder that nothing else has
	hash := sha256.Sum256(wasm)
	folder := filepath.Join(own, hex.EncodeToString(hash[:16]))
	removeOthers(own, folder)
	if module, err := host.Compile(ctx, wasm, host.Options{CacheDir: folder}); err == nil {
		return module, nil
	}
	module, err := host.Compile(ctx, wasm, host.Options{})
	if err == nil {
		_ = os.RemoveAll(folder) // damaged code would stay
	}
	return module, err
}

// removeOthers removes the code of other plugins, so that builds of a plugin do not fill the disk: each
// takes some 13 MB. It ignores errors.
func removeOthers(dir, but string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if name := filepath.Join(dir, entry.Name()); name != but {
			_ = os.RemoveAll(name)
		}
	}
}
