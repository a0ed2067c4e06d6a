package envoy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	"sigs.k8s.io/yaml"

	"weir/config"
)

func TestIstioMistakes(t *testing.T) {
	refuses(t, "istio.yaml", []mistake{
		{"unknown field of the plugin", "failStrategy:", "failurePolicy:", `unknown field "failurePolicy"`},
		{"field by its protobuf name", "pluginConfig:", "plugin_config:", "WasmPlugin: want its fields as the API writes them"},
		{"unknown phase", "phase: AUTHZ", "phase: AFTER_AUTHN", "AFTER_AUTHN"},
		{"phase before authentication", "phase: AUTHZ", "phase: AUTHN", "phase: want AUTHZ or STATS"},
		{"limits that fail open", "FAIL_RELOAD", "FAIL_OPEN", "failStrategy: want FAIL_RELOAD"},
		{"old version", "extensions.istio.io/v1alpha1", "extensions.istio.io/v1", "unknown extensions.istio.io/v1 WasmPlugin"},
		{"other kind", "kind: WasmPlugin", "kind: EnvoyFilter", "unknown extensions.istio.io/v1alpha1 EnvoyFilter"},
		{"another service's cluster is kept", "services: weir-system/weir.", "services: weir-system/redis.", "EnvoyFilter: want it to keep weir-system/weir.weir-system"},
		{"other proxies keep it", "    labels:\n      istio: ingressgateway", "    labels:\n      istio: egressgateway", "EnvoyFilter: want it to keep"},
		{"no plugin to fetch", "oci://images.example/weir-plugin:1", "weir.wasm", `url: want oci://… or file://…, got "weir.wasm"`},
		{"nobody selected", "selector:\n    matchLabels:\n      istio: ingressgateway", "priority: 1", "want a selector or targetRefs"},
		{"bad plugin configuration", "exact: /login", "equals: /login", "rules[1].match.path.equals: unknown field"},
		{"bad value", "window: 1s", "window: 1 second", "rules[0].limits[0].window: want a duration"},
		{"service selects nothing", "selector:\n    app: weir", "selector:\n    app: wier", "service weir: its selector selects no pod"},
		{"deployment selects nothing", "matchLabels:\n      app: weir", "matchLabels:\n      app: wier", "deployment weir: its selector"},
		{"no service", "apiVersion: v1\nkind: Service\nmetadata:\n  name: weir\n  namespace: weir-system\nspec:\n  selector:\n" +
			"    app: weir\n  ports:\n    # Istio takes the protocol from the port's name.\n    - name: http\n      port: 9180\n" +
			"      targetPort: http\n---\n", "", "want v1 Service too"},
		{"two ports", "            - name: http\n", "            - name: metrics\n              containerPort: 9181\n            - name: http\n",
			"want one container with one port"},
		{"deployment elsewhere", "namespace: weir-system\nspec:\n  #", "namespace: weir\nspec:\n  #",
			"deployment weir: want namespace weir-system"},
		{"other command", "- serve", "- run", "want serve, got run"},
		{"dead liveness probe", "path: /livez\n              port: http", "path: /livez\n              port: web", "livenessProbe: want /livez on port http"},
		{"restarts for the store's sake", "path: /livez", "path: /readyz", "livenessProbe: want /livez on port http"},
		{"target port", "targetPort: http", "targetPort: web", `no container port "web"`},
		{"listens elsewhere", "--listen=0.0.0.0:9180", "--listen=0.0.0.0:9181", "--listen: want 0.0.0.0:9180"},
		{"listens to itself", "--listen=0.0.0.0:9180", "--listen=127.0.0.1:9180", "--listen: want 0.0.0.0:9180"},
		{"ends at once", "--shutdown-delay=5s", "--shutdown-delay=0s", "want a --shutdown-delay"},
		{"a sidecar that ends first", "terminationDrainDuration: 15s", "terminationDrainDuration: 5s", "10 s more of terminationDrainDuration"},
		{"killed while it drains", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 10", "and more than that of terminationGracePeriodSeconds"},
		{"replicas that share nothing", "store: redis://redis.weir-system.svc.cluster.local:6379", "store: memory", "WEIR_STORE: want redis"},
		{"no token", "name: WEIR_TOKEN", "name: TOKEN", "WEIR_TOKEN: want one from the secret weir"},
		{"token of another secret", "secretKeyRef: {name: weir, key: token}", "secretKeyRef: {name: other, key: token}", "WEIR_TOKEN: want one from the secret weir"},
		{"another token", "      token: change-me\n", "      token: changed\n", "pluginConfig: backend.token: want the one of the secret weir"},
		{"plugin without a token", "      token: change-me\n", "", "pluginConfig: backend.token: want the one of the secret weir"},
		{"secret elsewhere", "  name: weir\n  namespace: weir-system\nstringData", "  name: weir\n  namespace: weir\nstringData", "secret weir: want namespace weir-system"},
		{"probe elsewhere", "path: /readyz", "path: /health", "readinessProbe: want /readyz"},
		{"unknown field of the deployment", "readinessProbe:", "readyProbe:", `unknown field "readyProbe"`},
		{"field in other case", "replicas: 2", "Replicas: 2", "Deployment: want its fields as the API writes them"},
		{"service elsewhere", "  namespace: weir-system\nspec:\n  selector:\n    app", "  namespace: weir\nspec:\n  selector:\n    app", "service weir: want namespace weir-system"},
		{"another user's privileges", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "what Pod Security's restricted allows"},
		{"all system calls", "type: RuntimeDefault", "type: Unconfined", "what Pod Security's restricted allows"},
		{"field twice", "replicas: 2", "replicas: 2\n  replicas: 3", "already set"},
	})
}

// object is a Kubernetes object. The types below are the specs in istio.yaml, with only the fields
// that occur there, so they need no further modules. [decode] requires every field that may not be
// omitted, and no other.
type object[Spec any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	// StringData is for a Secret.
	StringData map[string]string `json:"stringData,omitempty"`
	Spec       Spec              `json:"spec,omitzero"`
}

type (
	deployment struct {
		Replicas int `json:"replicas"`
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Template struct {
			Metadata struct {
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
			Spec struct {
				AutomountServiceAccountToken  bool        `json:"automountServiceAccountToken"`
				TerminationGracePeriodSeconds int         `json:"terminationGracePeriodSeconds"`
				Containers                    []container `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	}
	container struct {
		Name  string   `json:"name"`
		Image string   `json:"image"`
		Args  []string `json:"args"`
		Env   []struct {
			Name      string `json:"name"`
			ValueFrom struct {
				SecretKeyRef struct {
					Name string `json:"name"`
					Key  string `json:"key"`
				} `json:"secretKeyRef"`
			} `json:"valueFrom"`
		} `json:"env"`
		Ports []struct {
			Name          string `json:"name"`
			ContainerPort int    `json:"containerPort"`
		} `json:"ports"`
		ReadinessProbe probe `json:"readinessProbe"`
		LivenessProbe  probe `json:"livenessProbe"`
		Resources      struct {
			Requests map[string]string `json:"requests"`
		} `json:"resources"`
		SecurityContext struct {
			RunAsNonRoot             bool `json:"runAsNonRoot"`
			RunAsUser                int  `json:"runAsUser"`
			ReadOnlyRootFilesystem   bool `json:"readOnlyRootFilesystem"`
			AllowPrivilegeEscalation bool `json:"allowPrivilegeEscalation"`
			Capabilities             struct {
				Drop []string `json:"drop"`
			} `json:"capabilities"`
			SeccompProfile struct {
				Type string `json:"type"`
			} `json:"seccompProfile"`
		} `json:"securityContext"`
	}
	probe struct {
		HTTPGet struct {
			Path string `json:"path"`
			Port string `json:"port"`
		} `json:"httpGet,omitzero"`
		TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
	}
	envoyFilter struct {
		WorkloadSelector struct {
			Labels map[string]string `json:"labels"`
		} `json:"workloadSelector"`
		ConfigPatches []struct{} `json:"configPatches"`
	}
	service struct {
		Selector map[string]string `json:"selector"`
		Ports    []struct {
			Name       string `json:"name"`
			Port       int    `json:"port"`
			TargetPort string `json:"targetPort"`
		} `json:"ports"`
	}
)

type mesh struct {
	namespace  object[struct{}]
	secret     object[struct{}]
	deployment object[deployment]
	service    object[service]
	plugin     object[json.RawMessage]
	keeps      object[envoyFilter]
}

func checkIstio(text string) error {
	m, err := readMesh(text)
	if err != nil {
		return err
	}
	return errors.Join(m.checkWorkload(), m.checkPlugin())
}

func readMesh(text string) (m mesh, err error) {
	documents := map[string]any{
		"v1 Namespace":       &m.namespace,
		"v1 Secret":          &m.secret,
		"apps/v1 Deployment": &m.deployment,
		"v1 Service":         &m.service,
		"extensions.istio.io/v1alpha1 WasmPlugin":  &m.plugin,
		"networking.istio.io/v1alpha3 EnvoyFilter": &m.keeps,
	}
	for part := range strings.SplitSeq(text, "\n---\n") {
		document, err := yaml.YAMLToJSONStrict([]byte(part))
		if err != nil {
			return m, err
		}
		var head struct{ APIVersion, Kind string }
		if err := json.Unmarshal(document, &head); err != nil {
			return m, err
		}
		kind := head.APIVersion + " " + head.Kind
		into, known := documents[kind]
		if !known {
			return m, fmt.Errorf("unknown %s, or a second one", kind)
		}
		delete(documents, kind)
		if err := decode(document, into); err != nil {
			return m, fmt.Errorf("%s: %w", head.Kind, err)
		}
	}
	if len(documents) > 0 {
		return m, fmt.Errorf("want %s too", strings.Join(slices.Sorted(maps.Keys(documents)), ", "))
	}
	return m, nil
}

// decode parses a document into a struct that must have all its fields, with exactly these names.
func decode(document []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	written, err := json.Marshal(into)
	if err != nil {
		return err
	}
	return sameFields(document, written)
}

// sameFields refuses a document that differs from its parsed form: Go's decoders accept names in
// another case, or with their protobuf spelling, but Kubernetes doesn't.
func sameFields(document, understood []byte) error {
	var got, want any
	if err := errors.Join(json.Unmarshal(document, &got), json.Unmarshal(understood, &want)); err != nil {
		return err
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("want its fields as the API writes them: %s, got %s", understood, document)
	}
	return nil
}

func (m *mesh) checkWorkload() error {
	pod := m.deployment.Spec.Template
	if len(pod.Spec.Containers) != 1 || len(m.service.Spec.Ports) != 1 || len(pod.Spec.Containers[0].Ports) != 1 {
		return errors.New("want one container with one port, and a service with one port")
	}
	c, servicePort := pod.Spec.Containers[0], m.service.Spec.Ports[0]
	port := c.Ports[0]
	listen := "0.0.0.0:" + strconv.Itoa(port.ContainerPort)
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
	namespace := m.namespace.Metadata.Name
	// An invalid duration counts as 0.
	delay, _ := time.ParseDuration(flags["--shutdown-delay"])
	drain, _ := time.ParseDuration(strings.TrimPrefix(pod.Metadata.Annotations["proxy.istio.io/config"], "terminationDrainDuration: "))
	grace := time.Duration(pod.Spec.TerminationGracePeriodSeconds) * time.Second
	switch {
	case m.secret.Metadata.Namespace != namespace:
		return fmt.Errorf("secret %s: want namespace %s", m.secret.Metadata.Name, namespace)
	case environment["WEIR_TOKEN"] == "":
		return fmt.Errorf("container %s: WEIR_TOKEN: want one from the secret %s", c.Name, m.secret.Metadata.Name)
	case m.deployment.Metadata.Namespace != namespace:
		return fmt.Errorf("deployment %s: want namespace %s", m.deployment.Metadata.Name, namespace)
	case m.service.Metadata.Namespace != namespace:
		return fmt.Errorf("service %s: want namespace %s", m.service.Metadata.Name, namespace)
	case !selects(m.deployment.Spec.Selector.MatchLabels, pod.Metadata.Labels):
		return fmt.Errorf("deployment %s: its selector does not select its own pods", m.deployment.Metadata.Name)
	case !selects(m.service.Spec.Selector, pod.Metadata.Labels):
		return fmt.Errorf("service %s: its selector selects no pod", m.service.Metadata.Name)
	case servicePort.TargetPort != port.Name:
		return fmt.Errorf("service %s: no container port %q", m.service.Metadata.Name, servicePort.TargetPort)
	case c.Args[0] != "serve":
		return fmt.Errorf("container %s: want serve, got %s", c.Name, c.Args[0])
	case flags["--listen"] != listen:
		return fmt.Errorf("container %s: --listen: want %s, got %s", c.Name, listen, flags["--listen"])
	case delay <= 0 || drain < delay+10*time.Second || grace <= drain:
		return fmt.Errorf("deployment %s: want a --shutdown-delay, 10 s more of terminationDrainDuration, and more than that of "+
			"terminationGracePeriodSeconds, got %v, %v and %v", m.deployment.Metadata.Name, delay, drain, grace)
	case m.deployment.Spec.Replicas > 1 && !strings.HasPrefix(environment["WEIR_STORE"], "redis://"):
		return fmt.Errorf("container %s: WEIR_STORE: want redis://…, which replicas can share, got %s", c.Name, environment["WEIR_STORE"])
	case c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.ReadinessProbe.HTTPGet.Port != port.Name:
		return fmt.Errorf("container %s: readinessProbe: want /readyz on port %s", c.Name, port.Name)
	case c.LivenessProbe.HTTPGet.Path != "/livez" || c.LivenessProbe.HTTPGet.Port != port.Name:
		return fmt.Errorf("container %s: livenessProbe: want /livez on port %s", c.Name, port.Name)
	}
	// What Kubernetes' Pod Security Standard "restricted" asks for. By night an API server decides.
	switch s := c.SecurityContext; {
	case !s.RunAsNonRoot || s.RunAsUser == 0, s.AllowPrivilegeEscalation, !slices.Equal(s.Capabilities.Drop, []string{"ALL"}),
		s.SeccompProfile.Type != "RuntimeDefault":
		return fmt.Errorf("container %s: securityContext: want what Pod Security's restricted allows, got %+v", c.Name, s)
	}
	return nil
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

func (m *mesh) checkPlugin() error {
	// Its own UnmarshalJSON ignores unknown fields.
	spec := new(extensionsv1alpha1.WasmPlugin)
	if err := protojson.Unmarshal(m.plugin.Spec, spec); err != nil {
		return fmt.Errorf("WasmPlugin: %w", err)
	}
	understood, err := protojson.Marshal(spec)
	if err != nil {
		return err
	}
	if err := sameFields(m.plugin.Spec, understood); err != nil {
		return fmt.Errorf("WasmPlugin: %w", err)
	}
	scheme, _, _ := strings.Cut(spec.GetUrl(), "://")
	switch {
	case scheme != "oci" && scheme != "file":
		return fmt.Errorf("url: want oci://… or file://…, got %q", spec.GetUrl())
	case len(spec.GetSelector().GetMatchLabels()) == 0 && len(spec.GetTargetRefs()) == 0:
		return errors.New("want a selector or targetRefs, or it is for all of the namespace")
	case spec.GetPhase() != extensionsv1alpha1.PluginPhase_AUTHZ && spec.GetPhase() != extensionsv1alpha1.PluginPhase_STATS:
		return fmt.Errorf("phase: want AUTHZ or STATS, which come after authentication, got %s", spec.GetPhase())
	case spec.GetFailStrategy() != extensionsv1alpha1.FailStrategy_FAIL_RELOAD:
		return fmt.Errorf("failStrategy: want FAIL_RELOAD, got %s", spec.GetFailStrategy())
	}
	keeps := m.keeps.Metadata.Annotations["envoyfilter.istio.io/referenced-services"]
	if want := m.service.Metadata.Namespace + "/" + m.backendHost(); keeps != want || m.keeps.Metadata.Namespace != m.plugin.Metadata.Namespace ||
		!maps.Equal(m.keeps.Spec.WorkloadSelector.Labels, spec.GetSelector().GetMatchLabels()) {
		return fmt.Errorf("EnvoyFilter: want it to keep %s for the plugin's proxies, got %+v", want, m.keeps)
	}
	document, err := protojson.Marshal(spec.GetPluginConfig())
	if err != nil {
		return err
	}
	c, err := config.Parse(document)
	if err == nil && c.Backend.Token != m.secret.StringData["token"] {
		err = fmt.Errorf("pluginConfig: backend.token: want the one of the secret %s", m.secret.Metadata.Name)
	}
	return err
}
