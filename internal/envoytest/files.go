package envoytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Object is a message of Envoy's API as JSON.
type Object = map[string]any

// Typed returns a message for a field of type Any. name lacks the prefix type.googleapis.com/.
func Typed(name string, fields Object) Object {
	m := Object{"@type": "type.googleapis.com/" + name}
	maps.Copy(m, fields)
	return m
}

// Files are the resources of an Envoy that reads them from files, in place of a control plane. It
// is not safe for concurrent use.
type Files struct {
	dir     string
	version int
}

// NewFiles creates files without resources in an existing folder.
func NewFiles(dir string) (*Files, error) {
	f := &Files{dir: dir}
	for _, kind := range []string{"cds", "lds"} {
		if err := f.write(kind, nil); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Bootstrap returns the bootstrap of an Envoy with these files' clusters and listeners. The fields
// of more are added to it, and replace its own.
func (f *Files) Bootstrap(more Object) ([]byte, error) {
	bootstrap := Object{
		"node":              Object{"id": "envoytest", "cluster": "envoytest", "metadata": Object{"REPLICAS": 3, "TEXT": "3"}},
		"admin":             Object{"address": Address("127.0.0.1", 0)},
		"dynamic_resources": Object{"cds_config": f.source("cds"), "lds_config": f.source("lds")},
	}
	maps.Copy(bootstrap, more)
	return json.Marshal(bootstrap)
}

func (f *Files) source(kind string) Object {
	return Object{"resource_api_version": "V3", "path_config_source": Object{"path": f.path(kind)}}
}

// Address returns a core.v3.Address of a socket.
func Address(host string, port int) Object {
	return Object{"socket_address": Object{"address": host, "port_value": port}}
}

// updateTimeout bounds the time until a process has read its files.
const updateTimeout = time.Minute

// SetClusters replaces the process's clusters, and waits until it has them.
func (f *Files) SetClusters(ctx context.Context, e *Envoy, clusters []Object) error {
	return f.update(ctx, e, "cds", `^cluster_manager\.cds\.update_(success|rejected)$`, resources("envoy.config.cluster.v3.Cluster", clusters))
}

// SetListeners replaces the process's listeners, and waits until it has them. The error is a
// [*RefusedError] if the process refuses some.
func (f *Files) SetListeners(ctx context.Context, e *Envoy, listeners []Object) error {
	return f.update(ctx, e, "lds", `^listener_manager\.lds\.update_(success|rejected)$`, resources("envoy.config.listener.v3.Listener", listeners))
}

func resources(name string, messages []Object) []Object {
	typed := make([]Object, 0, len(messages))
	for _, m := range messages {
		typed = append(typed, Typed(name, m))
	}
	return typed
}

// RefusedError is the error of an update that a process refuses. It keeps its previous resources.
type RefusedError struct {
	Log string // the process's output since the update
}

func (e *RefusedError) Error() string { return "envoy has refused the update:\n" + e.Log }

// SetFilter replaces an HTTP filter's configuration, which listeners get by [Files.Discovery]. If
// no listener uses the filter yet, SetFilter only writes the file.
func (f *Files) SetFilter(ctx context.Context, e *Envoy, name string, config Object) error {
	kind, resource := "ecds-"+name, Typed("envoy.config.core.v3.TypedExtensionConfig", Object{"name": name, "typed_config": config})
	asked, err := e.Stats(filterStats(name))
	if err != nil {
		return err
	}
	if len(asked) == 0 {
		return f.write(kind, []Object{resource})
	}
	return f.update(ctx, e, kind, filterStats(name), []Object{resource})
}

func filterStats(name string) string {
	return `extension_config_discovery\.http_filter\.` + regexp.QuoteMeta(name) + `\.(config_reload|config_fail|update_rejected)$`
}

// Discovery returns an HTTP filter for a connection manager, with the configuration from
// [Files.SetFilter]. types are the accepted types of the configuration.
func (f *Files) Discovery(name string, types ...string) Object {
	for i := range types {
		types[i] = "type.googleapis.com/" + types[i]
	}
	return Object{"name": name, "config_discovery": Object{"type_urls": types, "config_source": f.source("ecds-" + name)}}
}

// update writes resources, and waits until a counter that matches has changed.
func (f *Files) update(ctx context.Context, e *Envoy, kind, counters string, all []Object) error {
	before, err := outcome(e, counters)
	if err != nil {
		return err
	}
	said := len(e.Log())
	if err := f.write(kind, all); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	after := before
	err = e.Wait(ctx, func() (bool, error) {
		after, err = outcome(e, counters)
		return after != before, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", kind, err, e.Log()[said:])
	}
	if after.rejected == before.rejected {
		return nil
	}
	// The log may still lack the reasons, which end with this line.
	err = e.Wait(ctx, func() (bool, error) { return strings.Contains(e.Log()[said:], "update rejected"), nil })
	return errors.Join(&RefusedError{Log: e.Log()[said:]}, err)
}

// updates counts the accepted and rejected updates.
type updates struct{ accepted, rejected int64 }

func outcome(e *Envoy, counters string) (u updates, err error) {
	stats, err := e.Stats(counters)
	for name, n := range stats {
		if strings.HasSuffix(name, "update_rejected") || strings.HasSuffix(name, "config_fail") {
			u.rejected += n
		} else {
			u.accepted += n
		}
	}
	return u, err
}

func (f *Files) path(kind string) string { return filepath.Join(f.dir, kind+".json") }

// write writes a file of resources. A process that watches it reads it at once. The name is without
// .json.
func (f *Files) write(name string, all []Object) error {
	f.version++
	if all == nil {
		all = []Object{}
	}
	document, err := json.Marshal(Object{"version_info": fmt.Sprint(f.version), "resources": all})
	if err != nil {
		return err
	}
	// Envoy notices a file only when it is moved into place.
	fresh := f.path(name) + ".new"
	if err := os.WriteFile(fresh, document, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, f.path(name))
}
