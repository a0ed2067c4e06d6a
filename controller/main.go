// Command controller, as weir-controller, attaches RateLimitPolicies to Gateways and routes: see docs/kubernetes.md.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"weir/controller/policy"
	"weir/internal/controllerflags"
)

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "weir-controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	if len(args) > 0 && args[0] == controllerflags.Policy {
		return showPolicies(ctx, scheme, args[1:])
	}
	flags := flag.NewFlagSet("weir controller", flag.ContinueOnError)
	given := controllerflags.Define(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || given.Plugin == "" {
		return errors.New("want --plugin and flags only")
	}
	base, err := baseOf(given.Configuration)
	if err != nil {
		return err
	}
	w := &writer{plugin: given.Plugin, pull: given.PullPolicy, trusted: given.TrustedCA, release: given.LeaseNamespace}
	if given.Backend != "" {
		if w.host, w.port, err = net.SplitHostPort(given.Backend); err != nil {
			return fmt.Errorf("--backend: %w", err)
		}
		w.token = os.Getenv("WEIR_TOKEN")
	}
	// The parser wants a backend where sync_rate has one.
	whole, err := w.with(base, policy.EnvoyGateway)
	if err != nil {
		return fmt.Errorf("--configuration: %w", err)
	}
	planner, err := policy.NewPlanner(whole)
	if err != nil {
		return fmt.Errorf("--configuration: %w", err)
	}
	namespaces, all := namespacesOf(given.Namespaces)
	var secret struct {
		Backend struct {
			Token  string
			Secret string `json:"key_secret"`
		}
	}
	if err := json.Unmarshal(whole, &secret); err != nil {
		return fmt.Errorf("--configuration: %w", err)
	}
	if len(namespaces) == 0 && !all && secret.Backend.Token+secret.Backend.Secret != "" {
		return errors.New("--namespaces: want the namespaces whose Gateways get plugins with the token or key_secret of the backend, or *")
	}

	ctrl.SetLogger(zap.New(zap.UseDevMode(false)))
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400 // statuses of a thousand policies in five seconds
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return err
	}
	if err := w.find(mapper); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: w.cached()}, Metrics: server.Options{BindAddress: cmp.Or(given.Metrics, "0")}, HealthProbeBindAddress: given.Health,
		LeaderElection: given.LeaseNamespace != "", LeaderElectionNamespace: given.LeaseNamespace, LeaderElectionID: "weir-controller", LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(manager.AddHealthzCheck("ping", healthz.Ping), manager.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	ctx, restart := context.WithCancelCause(ctx)
	r := &reconciler{restart: restart, Client: manager.GetClient(), direct: manager.GetAPIReader(), events: manager.GetEventRecorder("weir-controller"), planner: planner, writer: w, namespaces: namespaces}
	if err := r.watch(manager); err != nil {
		return err
	}
	if err := manager.Start(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// namespacesOf reads a list with commas between. It is none, and all, if * is in it.
func namespacesOf(list string) (some []string, all bool) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "*" {
			return nil, true
		} else if name != "" {
			some = append(some, name)
		}
	}
	return some, false
}

// baseOf reads the configuration without rules.
func baseOf(file string) (map[string]json.RawMessage, error) {
	base := map[string]json.RawMessage{}
	if file == "" {
		return base, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return base, yaml.UnmarshalStrict(text, &base)
}

// newScheme has the kinds that the controller reads.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(policy.AddToScheme(scheme), gatewayv1.Install(scheme), gatewayv1beta1.Install(scheme), corev1.AddToScheme(scheme))
}
