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
	certificate, key := authority.Issue(t, "redis")
	listen := func(port string) []string {
		return []string{"--port", "0", "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", authority.File,
			"--tls-auth-clients", "no"}
	}
	return launch(t, listen, func() []string { return options }), authority.Pool
}
