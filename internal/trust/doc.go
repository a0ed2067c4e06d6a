// Package trust decides which clients the counter backend trusts, by bearer tokens, each for all
// namespaces or for one, and by certificates. Both come from files, which are read again when they
// change.
//
// [Tokens] come from a file or are a single token. [Certificates] are a server's, with the
// authorities of its clients. Both are safe for concurrent use.
package trust
