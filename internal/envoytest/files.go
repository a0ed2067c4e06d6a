package envoytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Object is a message of Envoy's in JSON.
type Object = map[string]any

// Typed is a message for a field of type Any. Its name is without the type's prefix.
func Typed(name string, fields Object) Object {
	m := Object{"@type": "type.googleapis.com/" + name}
	for field, value := range fields {
		m[field] = value
	}
	return m
}

// Files are the resources of an Envoy that reads them from files, as a control plane would deliver
// them. Methods are not for several goroutines at once.
type Files struct {
	dir     string
	version int
}

// NewFiles makes resources in an existing folder; there are none at first.
func NewFiles(dir string) (*Files, error) {
	f := &Files{dir: dir}
	for _, kind := range []string{"cds", "lds"} {
		if err := f.write(kind, nil); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Bootstrap is that of an Envoy whose clusters and listeners are the files'. More is merged into
// it, field by field.
func (f *Files) Bootstrap(more Object) ([]byte, error) {
	bootstrap := Object{
		"node":              Object{"id": "envoytest", "cluster": "envoytest"},
		"admin":             Object{"address": Address("127.0.0.1", 0)},
		"dynamic_resources": Object{"cds_config": f.source("cds"), "lds_config": f.source("lds")},
	}
	for field, value := range more {
		bootstrap[field] = value
	}
	return json.Marshal(bootstrap)
}

func (f *Files) source(kind string) Object {
	return Object{"resource_api_version": "V3", "path_config_source": Object{"path": f.path(kind)}}
}

// Address is a core.v3.Address of a socket.
func Address(host string, port int) Object {
	return Object{"socket_address": Object{"address": host, "port_value": port}}
}

// updateTimeout bounds how long a process may take to read its files.
const updateTimeout = time.Minute

// SetClusters has the process replace its clusters, and waits until it has.
func (f *Files) SetClusters(ctx context.Context, e *Envoy, clusters []Object) error {
	return f.update(ctx, e, "cds", `^cluster_manager\.cds\.update_(success|rejected)$`, resources("envoy.config.cluster.v3.Cluster", clusters))
}

// SetListeners does the same with listeners. The error is [*RefusedError] if the process has
// refused some.
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

// RefusedError says that a process has refused an update. It goes on with what it had.
type RefusedError struct {
	Log string // what the process has written since the update
}

func (e *RefusedError) Error() string { return "envoy has refused the update:\n" + e.Log }

// SetFilter has the process take an HTTP filter's configuration, which listeners ask for by
// [Files.Discovery]. A first one, which no listener has asked for yet, is only written.
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
	return `extension_config_discovery\.http_filter\.` + escape(name) + `\.(config_reload|config_fail|update_rejected)$`
}

// Discovery is an HTTP filter of a connection manager, with the configuration that
// [Files.SetFilter] sets.
func (f *Files) Discovery(name string, types ...string) Object {
	for i := range types {
		types[i] = "type.googleapis.com/" + types[i]
	}
	return Object{"name": name, "config_discovery": Object{"type_urls": types, "config_source": f.source("ecds-" + name)}}
}

// update writes resources, and waits until one of the counters that match has changed.
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
	// The reasons may still be on their way here; this is the last line of them.
	err = e.Wait(ctx, func() (bool, error) { return strings.Contains(e.Log()[said:], "update rejected"), nil })
	return errors.Join(&RefusedError{Log: e.Log()[said:]}, err)
}

// updates counts what a process has made of its files.
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

// write writes a file of resources, which a process that watches it reads at once. Its name is
// without the ending.
func (f *Files) write(name string, all []Object) error {
	f.version++
	if all == nil {
		all = []Object{}
	}
	document, err := json.Marshal(Object{"version_info": fmt.Sprint(f.version), "resources": all})
	if err != nil {
		return err
	}
	// Envoy looks when a file is moved into its place.
	fresh := f.path(name) + ".new"
	if err := os.WriteFile(fresh, document, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, f.path(name))
}
