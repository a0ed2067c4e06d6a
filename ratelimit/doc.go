// Package ratelimit limits how often a program does something, or serves somebody:
//
//	perUser, err := ratelimit.NewLimiter(ratelimit.SlidingWindow(100, time.Minute))
//	allowed, err := perUser.Allow(ctx, "ann")
//
// It is Weir as a library. A program is a node, as a proxy is: it decides in its own memory, with
// the same engine as the plugin. Proxies and programs share one limit if they use the same
// namespace, rules and backend.
//
// A [Limiter] decides by the limits of one rule. A request takes hits from all of them, or from
// none. [Limiter.Allow] answers yes or no. [Limiter.Decide] also returns how the limits stand and
// when to retry. The function [Decide] decides several rules at once, and [DecideEach] many requests,
// each by itself. [SlidingWindow], [TokenBucket] and similar functions make a limit of each of Weir's
// algorithms.
//
// [NewNamespace] makes a [Namespace]: rules, and a bounded table for their counters.
// [Namespace.Limiter] returns the limiter of one rule. A namespace with a [Backend] synchronises
// its counters with the other nodes. A backend is weir serve, reached by [Dial], or a database,
// opened by Open of package stores. Programs that decide for themselves count with
// [Namespace.Increment] and read with [Namespace.Rate].
//
// Decisions are as exact as the plugin's. A single node never admits more than a limit, whatever
// the number of goroutines. With a backend, all nodes together never admit more than a limit while
// they can reach it. A request waits only if the backend alone can allow it, and at most for
// [Options.Timeout]. While the backend can't be reached, [Options.OnBackendFailure] decides. Each
// hit is counted in the backend exactly once, even if a push has to be repeated. [Options.Capacity]
// bounds the memory, whatever the keys.
//
// Packages limithttp and limitgrpc have middleware for net/http and interceptors for gRPC.
//
// A namespace with a backend runs goroutines until [Namespace.Close]. A namespace without a backend
// runs none, and needs no Close. All methods are safe for concurrent use.
package ratelimit
