//go:build !wasm

package usage_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/nightly"
)

// The search in WebAssembly is a function of its own: the tests above run there too, as Go's
// compiler leaves the code, by night, and as the plugin has it.
func TestOnWebAssembly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain, straight := filepath.Join(dir, "go.wasm"), filepath.Join(dir, "straight.wasm")
	command := func(environment []string, name string, args ...string) {
		c := exec.Command(name, args...)
		c.Env = append(os.Environ(), environment...)
		commandtest.Run(t, c)
	}
	command([]string{"GOOS=wasip1", "GOARCH=wasm"}, "go", "test", "-c", "-ldflags=-w", "-o", plain, ".")
	command(nil, "go", "run", "../../scripts/straighten", plain, straight)
	for _, file := range nightly.Or([]string{plain, straight}, []string{straight}) {
		module := must.Get(os.ReadFile(file))(t)
		ctx := context.Background()
		engine := wazero.NewRuntime(ctx)
		defer engine.Close(ctx)
		wasi_snapshot_preview1.MustInstantiate(ctx, engine)
		var output bytes.Buffer
		config := wazero.NewModuleConfig().WithStdout(&output).WithStderr(&output).WithSysWalltime().WithSysNanotime().WithRandSource(zeros{}).
			WithArgs("usage.test", "-test.v", "-test.run=^TestSearch(|Long)$")
		_, err := engine.InstantiateWithConfig(ctx, module, config)
		said := output.String()
		for _, name := range []string{"TestSearch", "TestSearchLong"} {
			must.Contains(t, said, "--- PASS: "+name+" ", "%s: %v", filepath.Base(file), err)
		}
	}
}

// zeros has only zeros to read.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
