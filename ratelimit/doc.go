// Package ratelimit limits how often a program does something, or serves somebody:
//
//	perUser, err := ratelimit.NewLimiter(ratelimit.SlidingWindow(100, time.Minute))
//	allowed, err := perUser.Allow(ctx, "ann")
//
// It is Weir as a library. A program is a node like a proxy: it decides with the plugin's own
// engine, in its own memory. Proxies and programs that have the same namespace, rules and backend
// keep to one limit together.
//
// A [Limiter] decides by the limits of one rule: all of them have room and are taken from, or none
// is. [Limiter.Allow] says yes or no, [Limiter.Decide] also how the limits stand, and when to come
// again. The function [Decide] does so for several rules at once. [SlidingWindow], [TokenBucket]
// and their like make limits of all of Weir's algorithms.
//
// A [Namespace], from [NewNamespace], has counters in a bounded table of its own, and rules;
// [Namespace.Limiter] is the limiter of one. If it has a [Backend], that keeps its counters in step
// with the other nodes'. A backend is weir serve, by [Dial], or a database, by Open of package
// stores. For programs that decide by themselves, [Namespace.Increment] and [Namespace.Rate] count,
// and tell rates.
//
// The package promises the same of decisions as the plugin. They are exact for one node, whatever
// the number of goroutines. With a backend all nodes together never admit more than a limit, while
// it can be reached. A request whose hits only the backend can allow waits for it, for
// [Options.Timeout] at most. While the backend can't be reached, [Options.OnBackendFailure]
// decides. Each hit reaches the backend exactly once, however often a push has to be repeated.
// Memory is bounded by [Options.Capacity], whatever the keys.
//
// Middleware for net/http and interceptors for gRPC are in packages limithttp and limitgrpc.
//
// A namespace with a backend has goroutines of its own until [Namespace.Close]. One without has
// none, and needs no Close. All methods may be called from any number of goroutines.
package ratelimit
