// Package trust says whom the counter backend believes: bearer tokens, each for all namespaces or
// for one, and certificates. Both come from files, which are read again when they change.
//
// [Tokens] are a file's or a single one, [Certificates] are a server's, with those that have signed
// its clients'. Both may be used by any number of goroutines.
package trust
