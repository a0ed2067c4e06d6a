// Package ratelimit is Weir as a library, for programs that limit without Envoy.
//
// It decides by the plugin's own code (packages window, counter and sharedata), in the memory of the process, and uses the words
// of Kong's rate-limiting library: an [Instance] has namespaces, each defined once by [Instance.NewNamespace]; a [Namespace] has
// counters in a bounded table of its own, and is synchronised with the other processes' through a [Store], if it has one.
//
// Which type to use:
//
//   - A [Limiter], from [Namespace.Limiter], decides: all of a rule's limits have room and are taken from, or none is. It has all
//     of Weir's algorithms.
//   - [Namespace.Increment] and [Namespace.SlidingWindow] count and tell rates, and leave the decision to the caller, as Kong's
//     increment and sliding_window do.
//
// What is promised: Decisions are exact for the hits that this process knows of, whatever the number of goroutines. Memory is
// bounded by [NamespaceOptions.Capacity], whatever the keys; counters far from their limit make room first. Each hit reaches the
// store exactly once, however often a push has to be repeated ([Namespace.Lost] counts the exceptions), and once all processes
// have synchronised, they know the same totals. Between two synchronisations each process sees its own hits only, and together
// they can exceed a limit by what came meanwhile.
//
// Where the totals are: [Dial] asks weir serve, so that a program needs no access to the database. Open of package stores opens a
// database itself.
//
// A counter's identity in the store is that of the plugin: a program and a proxy that have the same namespace, rule and store
// count together.
//
// Nothing here starts a goroutine or reads a clock other than [Options.Now], but for [Namespace.Run]'s ticker. All methods may
// be called from any number of goroutines.
package ratelimit
