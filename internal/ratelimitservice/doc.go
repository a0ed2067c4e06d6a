// Package ratelimitservice is Envoy's rate limit service, envoy.service.ratelimit.v3, with the
// configuration of envoyproxy/ratelimit. [Read] makes a [Configuration] of files, a [Source] or an
// [XDS] server brings new versions, and a [Service] answers requests by the last.
//
// Each instance is a node of Weir's engine: it decides by its leases from the backend, so several
// instances keep a common limit. The counters are separate from the configuration, so that a new
// configuration loses none: see [Counters].
package ratelimitservice
