package site

import (
	"encoding/json"
	"maps"
	"net"
	"strconv"

	"weir/internal/envoytest"
)

// Object is a part of a configuration.
type Object = envoytest.Object

// Envoy is a configuration of Envoy.
type Envoy struct {
	// Module is the filter's, with its configuration. Filter is one of Envoy's own.
	Module, Text string
	// Waits means that the module may read the body of a request before it goes on.
	Waits  bool
	Filter Object
	// Route is merged into the route that all requests take.
	Route Object
	// Services are processes that work for Envoy.
	Services []string
}

// Names of services.
const (
	WeirServe        = "weir serve"
	WeirServeOnRedis = "weir serve on Redis"
	RateLimitService = "ratelimit"
	WeirRateLimit    = "weir ratelimit"
	RedisServer      = "redis-server"
)

// Modules of filters: Weir's two forms, and those with which they are compared.
const (
	Plugin   = "weir.wasm"
	Native   = "libweir.so"
	Nothing  = "nothing.wasm"
	Floor    = "floor.wasm"
	ModuleSO = "module.so"
)

// Clusters besides the upstream's.
const (
	BackendCluster   = "weir_backend"
	RateLimitCluster = "ratelimit"
)

// Namespace and Never are of all limits: the namespace or domain, and a limit a minute that is never reached.
const (
	Namespace = "bench"
	Never     = 1_000_000
)

// filters returns the filter that is measured, if there is one.
func (e *Envoy) filters(file string) []Object {
	text := envoytest.Typed("google.protobuf.StringValue", Object{"value": e.Text})
	own := e.Filter
	switch e.Module {
	case "":
		if own == nil {
			return nil
		}
	case Native, ModuleSO:
		own = envoytest.Typed("envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter", Object{
			"dynamic_module_config": Object{"module": Object{"local": Object{"filename": file}}, "do_not_close": true},
			"filter_name":           "bench", "filter_config": text,
		})
	default:
		config := Object{
			"name": "bench", "root_id": "bench", "failure_policy": "FAIL_CLOSED",
			"vm_config": Object{"vm_id": "bench", "runtime": "envoy.wasm.runtime.v8", "code": Object{"local": Object{"filename": file}}},
		}
		if e.Text != "" {
			config["configuration"] = text
		}
		if e.Waits {
			config["allow_on_headers_stop_iteration"] = true
		}
		own = envoytest.Typed("envoy.extensions.filters.http.wasm.v3.Wasm", Object{"config": config})
	}
	return []Object{{"name": "measured", "typed_config": own}}
}

// Bootstrap returns Envoy's configuration: a listener, a route for all requests, and an upstream.
func (e *Envoy) Bootstrap(s *Site) ([]byte, error) {
	clusters := []Object{cluster("app", s.Upstream)}
	for _, service := range e.Services {
		switch service {
		case WeirServe, WeirServeOnRedis:
			clusters = append(clusters, cluster(BackendCluster, s.Services[service].Port))
		case RateLimitService, WeirRateLimit:
			const options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
			clusters = append(clusters, Merged(cluster(RateLimitCluster, s.Services[service].Port), Object{"typed_extension_protocol_options": Object{
				options: envoytest.Typed(options, Object{"explicit_http_config": Object{"http2_protocol_options": Object{}}})}}))
		}
	}
	route := Object{"match": Object{"prefix": "/"}}
	if e.Route["direct_response"] != nil {
		route = Merged(route, e.Route)
	} else {
		route["route"] = Merged(Object{"cluster": "app"}, e.Route)
	}
	return json.Marshal(Object{
		"admin": Object{"address": envoytest.Address(host, 0)},
		"static_resources": Object{
			"clusters":  clusters,
			"listeners": []Object{envoytest.Listener("http", envoytest.Manager("http", []Object{route}, e.filters(s.Files[e.Module])...))},
		},
	})
}

func cluster(name string, port int) Object {
	return envoytest.Cluster(name, net.JoinHostPort(host, strconv.Itoa(port)))
}

// Merged adds fields to an Object, and returns it.
func Merged(all, more Object) Object {
	maps.Copy(all, more)
	return all
}
