// Package trust decides which clients the counter backend trusts, and with what. A client shows a
// bearer token or a certificate. Both are checked against files, which are read again when they
// change. A token has verbs in namespaces, and so may a certificate: [Client.May] decides by the
// matrix of [Calls].
//
// [Tokens] are a single token, or come from a file. [Certificates] configures a server's
// certificate and the authorities of its clients. Both are safe for concurrent use.
package trust
