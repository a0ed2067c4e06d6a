package envoytest

import "net"

// managerType is the type of an HTTP connection manager.
const managerType = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// Router is the last filter of a connection manager.
func Router() Object {
	return Object{"name": "router", "typed_config": Typed("envoy.extensions.filters.http.router.v3.Router", nil)}
}

// Manager returns a connection manager with routes, and with HTTP filters before the router. Its
// metrics have the name.
func Manager(name string, routes []Object, filters ...Object) Object {
	return Object{
		"stat_prefix":  name,
		"route_config": Object{"virtual_hosts": []Object{{"name": "all", "domains": []string{"*"}, "routes": routes}}},
		"http_filters": append(filters, Router()),
	}
}

// Listener returns a listener at a free port that has a connection manager.
func Listener(name string, manager Object) Object {
	return Object{"name": name, "address": Address("127.0.0.1", 0), "filter_chains": []Object{
		{"filters": []Object{{"name": "http", "typed_config": Typed(managerType, manager)}}},
	}}
}

// Cluster returns a cluster of servers, each a host with a port.
func Cluster(name string, servers ...string) Object {
	var endpoints []Object
	for _, server := range servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			host = server // which Envoy refuses
		}
		endpoints = append(endpoints, Object{"endpoint": Object{"address": Object{"socket_address": Object{"address": host, "port_value": port}}}})
	}
	return Object{"name": name, "type": "STATIC", "load_assignment": Object{
		"cluster_name": name, "endpoints": []Object{{"lb_endpoints": endpoints}},
	}}
}
