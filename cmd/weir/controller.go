package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"weir/internal/controllerflags"
)

const controllerHelp = `
It reads RateLimitPolicies, and writes what Istio or Envoy Gateway takes: the plugin with the rules that
are in force at each Gateway. The policies' statuses say what has become of them. It starts the program
weir-controller, which is beside weir or in the PATH.

  weir controller --plugin registry.example/weir-plugin:v0.1.0
  weir controller --plugin registry.example/weir-plugin:v0.1.0 --backend weir.weir-system.svc.cluster.local:9180

Environment:

  KUBECONFIG  names the API server, outside of a pod
  WEIR_TOKEN  is the backend's token, which the plugins get
`

const policyHelp = `
It shows RateLimitPolicies with their targets and conditions, and then which rules are in force at
which Gateway and route, and of which policy: overrides and defaults are merged. Whoever asks has to be
allowed to list these in all namespaces. It starts the program weir-controller, as weir controller does.

  weir policy
  kubectl weir policy -n shop

Environment:

  KUBECONFIG  names the API server
`

func controller(ctx context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("controller", flag.ContinueOnError)
	given := controllerflags.Define(flags)
	if err := parseFlags(flags, args, env); err != nil {
		return err
	}
	if given.Plugin == "" {
		return fmt.Errorf("%w: want --plugin", errUsage)
	}
	return runController(ctx, args, env)
}

func showPolicies(ctx context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("policy", flag.ContinueOnError)
	controllerflags.DefinePolicy(flags)
	if err := parseFlags(flags, args, env); err != nil {
		return err
	}
	return runController(ctx, append([]string{controllerflags.Policy}, args...), env)
}

func runController(ctx context.Context, args []string, env environment) error {
	name := "weir-controller"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(file); err != nil {
		if file, err = exec.LookPath(name); err != nil {
			return fmt.Errorf("want %s beside weir, or in the PATH: %w", name, err)
		}
	}
	program := exec.CommandContext(ctx, file, args...)
	program.Stdin, program.Stdout, program.Stderr = env.stdin, env.stdout, env.stderr
	program.Cancel = func() error { return program.Process.Signal(syscall.SIGTERM) }
	if err = program.Run(); ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
