// Package trust decides which clients the counter backend trusts. A client shows a bearer token,
// for all namespaces or for some, or a certificate. Both are checked against files, which are read
// again when they change.
//
// [Tokens] are a single token, or come from a file. [Certificates] configures a server's
// certificate and the authorities of its clients. Both are safe for concurrent use.
package trust
