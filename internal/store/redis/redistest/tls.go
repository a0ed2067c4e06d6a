package redistest

import (
	"crypto/x509"
	"testing"

	"weir/internal/trust/trusttest"
)

// StartTLS starts a server that accepts only TLS. Clients can verify its certificate, for
// 127.0.0.1, with the returned pool.
func StartTLS(t testing.TB, options ...string) (*Server, *x509.CertPool) {
	t.Helper()
	authority := trusttest.New(t)
	return launch(t, listenTLS(t, authority), func() []string { return options }), authority.Pool
}

// listenTLS returns what makes the options to listen at a port with TLS only, also for other servers.
func listenTLS(t testing.TB, authority *trusttest.Authority) func(port string) []string {
	certificate, key := authority.Issue(t, "redis")
	return func(port string) []string {
		return []string{"--port", "0", "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", authority.File,
			"--tls-auth-clients", "no", "--tls-replication", "yes"}
	}
}
