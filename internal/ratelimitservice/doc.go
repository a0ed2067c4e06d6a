// Package ratelimitservice is Envoy's rate limit service, envoy.service.ratelimit.v3, with the
// configuration of envoyproxy/ratelimit. [Read] makes a [Configuration] of its files, [Watch] reads
// them again when they change, and a [Service] answers requests by it.
//
// Each instance is a node of Weir's engine: it decides by what it has leased from the backend, and
// several instances keep to one limit together. The counters are apart from the configuration, so
// that another configuration loses none: see [Counters].
package ratelimitservice
