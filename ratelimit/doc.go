// Package ratelimit is Weir as a library, for programs that limit without Envoy.
//
// A program is a node like a proxy. It decides with the plugin's own engine, in its own memory.
// Proxies and programs that have the same namespace, rules and backend keep to one limit together.
//
// An [Instance] has namespaces, each defined once by [Instance.NewNamespace]. A [Namespace] has
// counters in a bounded table of its own. If it has a [Backend], that keeps them in step with the
// other nodes'. A backend is weir serve, by [Dial], or a database, by Open of package stores.
//
// Two ways to use a namespace:
//
//   - A [Limiter], from [Namespace.Limiter], decides by a rule's limits: all of them have room and
//     are taken from, or none is. [Namespace.Decide] does so for several rules at once. These have
//     all of Weir's algorithms.
//   - [Namespace.Increment] and [Namespace.SlidingWindow] count and tell rates, and leave the
//     decision to the caller, as increment and sliding_window of Kong's rate-limiting library do.
//
// What is promised of decisions is what the plugin promises. They are exact for one node, whatever
// the number of goroutines. With a backend all nodes together never admit more than a limit, while
// it can be reached. A request whose hits only the backend can allow waits for it, for
// [NamespaceOptions.Timeout] at most. While the backend can't be reached,
// [NamespaceOptions.OnBackendFailure] decides. Each hit reaches the backend exactly once, however
// often a push has to be repeated. Memory is bounded by [NamespaceOptions.Capacity], whatever the
// keys.
//
// Middleware for net/http and interceptors for gRPC are in packages limithttp and limitgrpc.
//
// A namespace with a backend has goroutines of its own until [Namespace.Close]. One without has
// none, and needs no Close. All methods may be called from any number of goroutines.
package ratelimit
