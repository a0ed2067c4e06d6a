package envoy_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	"sigs.k8s.io/yaml"

	"weir/config"
	"weir/internal/must"
)

// The resources of istio.yaml fit together where neither an API server nor a gateway would notice. charts compares their fields
// with schemas, and release/gateway has an API server and Istio's control plane take them.
func TestIstioYAML(t *testing.T) {
	t.Parallel()
	m := must.Get(readMesh(must.Text(t, "istio.yaml")))(t)
	pod, ports, spec := m.deployment.Spec.Template, m.service.Spec.Ports, m.plugin.Spec
	if len(pod.Spec.Containers) != 1 || len(ports) != 1 || len(pod.Spec.Containers[0].Ports) != 1 {
		t.Fatal("want one container with one port, and a service with one port")
	}
	c := pod.Spec.Containers[0]
	port := c.Ports[0]
	flags := make(map[string]string)
	for _, arg := range c.Args {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}
	environment := make(map[string]string)
	for _, e := range c.Env {
		if from := e.ValueFrom.SecretKeyRef; from.Name == m.secret.Metadata.Name {
			environment[e.Name] = m.secret.StringData[from.Key]
		}
	}
	delay := must.Get(time.ParseDuration(flags["--shutdown-delay"]))(t)
	drain := must.Get(time.ParseDuration(strings.TrimPrefix(pod.Metadata.Annotations["proxy.istio.io/config"], "terminationDrainDuration: ")))(t)
	grace := time.Duration(pod.Spec.TerminationGracePeriodSeconds) * time.Second
	plugin := must.Get(config.Parse(must.Get(json.Marshal(spec.GetPluginConfig()))(t)))(t)
	for want, holds := range map[string]bool{
		"the service to select the pods":                    selects(m.service.Spec.Selector, pod.Metadata.Labels),
		"the service's port to be the container's":          ports[0].TargetPort == port.Name,
		"weir serve to listen at that port for all":         c.Args[0] == "serve" && flags["--listen"] == "0.0.0.0:"+strconv.Itoa(port.ContainerPort),
		"readiness at /readyz":                              c.ReadinessProbe.HTTPGet == probed{"/readyz", port.Name},
		"no token of the cluster, and a read-only root":     pod.Spec.AutomountServiceAccountToken != nil && !*pod.Spec.AutomountServiceAccountToken && c.SecurityContext.ReadOnlyRootFilesystem,
		"requests of resources":                             len(c.Resources.Requests) > 0,
		"liveness at /livez, whatever the store does":       c.LivenessProbe.HTTPGet == probed{"/livez", port.Name},
		"a sidecar that goes on for 10 s after the backend": delay > 0 && drain >= delay+10*time.Second,
		"a pod that is killed after its sidecar has ended":  grace > drain,
		"a store that replicas can share":                   m.deployment.Spec.Replicas <= 1 || strings.HasPrefix(environment["WEIR_STORE"], "redis://"),
		"the plugin to have the backend's token":            environment["WEIR_TOKEN"] != "" && plugin.Backend.Token == environment["WEIR_TOKEN"],
		"a plugin for some proxies of its namespace":        len(spec.GetSelector().GetMatchLabels()) > 0 || len(spec.GetTargetRefs()) > 0,
		"a plugin that comes after authentication":          spec.GetPhase() == extensionsv1alpha1.PluginPhase_AUTHZ || spec.GetPhase() == extensionsv1alpha1.PluginPhase_STATS,
		"a plugin that is restarted once it has failed":     spec.GetFailStrategy() == extensionsv1alpha1.FailStrategy_FAIL_RELOAD,
	} {
		must.Equal(t, holds, true, "%s", want)
	}
}

// object is a Kubernetes object, with the fields that tests read. Names of fields are compared without regard to case.
type object[Spec any] struct {
	Metadata   struct{ Name, Namespace string }
	StringData map[string]string // of a Secret
	Spec       Spec
}

type (
	deployment struct {
		Replicas int
		Template struct {
			Metadata struct{ Labels, Annotations map[string]string }
			Spec     struct {
				AutomountServiceAccountToken  *bool
				TerminationGracePeriodSeconds int
				Containers                    []container
			}
		}
	}
	container struct {
		Args []string
		Env  []struct {
			Name      string
			ValueFrom struct{ SecretKeyRef struct{ Name, Key string } }
		}
		Ports []struct {
			Name          string
			ContainerPort int
		}
		ReadinessProbe, LivenessProbe struct{ HTTPGet probed }
		Resources                     struct{ Requests map[string]string }
		SecurityContext               struct{ ReadOnlyRootFilesystem bool }
	}
	probed  struct{ Path, Port string }
	service struct {
		Selector map[string]string
		Ports    []struct {
			Port       int
			TargetPort string
		}
	}
)

type mesh struct {
	secret     object[struct{}]
	deployment object[deployment]
	service    object[service]
	plugin     object[*extensionsv1alpha1.WasmPlugin]
}

func readMesh(text string) (m mesh, err error) {
	resources := map[string]any{"Secret": &m.secret, "Deployment": &m.deployment, "Service": &m.service, "WasmPlugin": &m.plugin}
	for part := range strings.SplitSeq(text, "\n---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(part), &head); err != nil {
			return m, err
		}
		if into := resources[head.Kind]; into != nil {
			if err := yaml.Unmarshal([]byte(part), into); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// selects reports whether a non-empty selector selects an object with these labels.
func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}
