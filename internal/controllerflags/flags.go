// Package controllerflags has the flags of weir controller. That command starts weir-controller, which is of a module of its
// own, so that weir does not carry Kubernetes' libraries.
package controllerflags

import "flag"

// Flags are the values of the flags.
type Flags struct {
	Configuration, Plugin, PullPolicy, Backend, TrustedCA, LeaseNamespace, Namespaces, Health, Metrics string
}

// Define adds the flags to a set.
func Define(set *flag.FlagSet) *Flags {
	f := &Flags{}
	set.StringVar(&f.Backend, "backend", "", "the Service of weir serve as `HOST:PORT`; without it each proxy counts alone")
	set.StringVar(&f.Configuration, "configuration", "", "a `FILE` with the fields of the plugins' configuration but rules and namespace, in JSON or YAML")
	set.StringVar(&f.Health, "health", ":9181", "the `ADDRESS` of /healthz and /readyz")
	set.StringVar(&f.LeaseNamespace, "lease-namespace", "", "the `NAMESPACE` of the lease by which one of several replicas works; without it all do")
	set.StringVar(&f.Metrics, "metrics", "", "the `ADDRESS` of /metrics for Prometheus; without it there are none")
	set.StringVar(&f.Namespaces, "namespaces", "", "the `NAMESPACES` whose Gateways get plugins, with commas between, or * for all; wanted beside a token, which plugins have")
	set.StringVar(&f.Plugin, "plugin", "", "the plugin's `IMAGE`, such as registry.example/weir-plugin:v0.1.0")
	set.StringVar(&f.PullPolicy, "pull-policy", "IfNotPresent", "when proxies pull the image: `IfNotPresent or Always`")
	set.StringVar(&f.TrustedCA, "trusted-ca", "", "a `FILE` of Envoy Gateway's proxies with the authority of the backend's certificate; without it there is no TLS")
	return f
}

// Policy is the argument with which weir-controller is weir policy.
const Policy = "policy"

// DefinePolicy adds the flags of weir policy to a set.
func DefinePolicy(set *flag.FlagSet) (namespace *string) {
	return set.String("n", "", "the `NAMESPACE` of policies, routes and Gateways to show; without it all are")
}
