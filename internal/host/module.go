package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	wasi "github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// Options configure [Compile]. The zero value selects the optimizing compiler without a cache on
// disk.
type Options struct {
	// CacheDir is a directory that keeps compiled code between processes. It is created if it is
	// missing.
	CacheDir string
	// Interpreter skips compilation: the start is faster, and calls are slower.
	Interpreter bool
}

// Module is a compiled plugin. VMs of several processes may be made from it, concurrently.
type Module struct {
	runtime  wazero.Runtime
	cache    wazero.CompilationCache
	compiled wazero.CompiledModule
}

// abiVersion is exported by plugins of this version of the ABI.
const abiVersion = "proxy_abi_version_0_2_1"

// Compile compiles a plugin. It refuses a module of another ABI version than 0.2.1, or with no function to allocate memory. A module that imports functions that the host lacks
// compiles; [Process.NewVM] refuses it.
func Compile(ctx context.Context, wasm []byte, options Options) (_ *Module, err error) {
	config := wazero.NewRuntimeConfigCompiler()
	if options.Interpreter {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	m := &Module{}
	if options.CacheDir != "" {
		if m.cache, err = wazero.NewCompilationCacheWithDir(options.CacheDir); err != nil {
			return nil, fmt.Errorf("compilation cache: %w", err)
		}
		config = config.WithCompilationCache(m.cache)
	}
	m.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close(ctx))
		}
	}()
	if err := instantiateWASI(ctx, m.runtime); err != nil {
		return nil, err
	}
	if err := instantiateEnv(ctx, m.runtime); err != nil {
		return nil, err
	}
	if m.compiled, err = m.runtime.CompileModule(ctx, wasm); err != nil {
		return nil, fmt.Errorf("compile module: %w", err)
	}
	return m, m.check()
}

func (m *Module) check() error {
	exports := m.compiled.ExportedFunctions()
	if exports[abiVersion] == nil {
		return errors.New("module exports no function " + abiVersion)
	}
	for _, name := range []string{"malloc", "proxy_on_memory_allocate"} {
		if f, ok := exports[name]; ok {
			return checkSignature(f, 1, 1)
		}
	}
	return errors.New("module exports neither malloc nor proxy_on_memory_allocate")
}

func checkSignature(f api.FunctionDefinition, params, results int) error {
	if len(f.ParamTypes()) != params || len(f.ResultTypes()) != results {
		return fmt.Errorf("export %s: want %d parameters and %d results, got %d and %d",
			f.ExportNames(), params, results, len(f.ParamTypes()), len(f.ResultTypes()))
	}
	return nil
}

// Close frees the compiled code. Close all VMs before.
func (m *Module) Close(ctx context.Context) error {
	err := m.runtime.Close(ctx)
	if m.cache != nil {
		err = errors.Join(err, m.cache.Close(ctx))
	}
	return err
}

// instantiateWASI provides wazero's WASI, except that proc_exit returns: in Envoy, a plugin goes on
// after it.
func instantiateWASI(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(wasi.ModuleName)
	wasi.NewFunctionExporter().ExportFunctions(b)
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
		vm := vmOf(ctx)
		vm.log(LevelError, fmt.Sprintf("proc_exit(%d) ignored", uint32(stack[0])))
	}), []api.ValueType{api.ValueTypeI32}, nil).Export("proc_exit")
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("instantiate %s: %w", wasi.ModuleName, err)
	}
	return nil
}
