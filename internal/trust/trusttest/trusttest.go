// Package trusttest makes certificates for tests.
package trusttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/must"
)

// Authority signs certificates.
type Authority struct {
	// File has the authority's own certificate, in PEM. Pool has only that certificate.
	File string
	Pool *x509.CertPool

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

// New returns a new authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{Pool: x509.NewCertPool(), key: newKey(t), File: filepath.Join(t.TempDir(), "ca.pem")}
	template := a.template("weir test CA")
	template.KeyUsage, template.IsCA, template.BasicConstraintsValid = x509.KeyUsageCertSign, true, true
	a.certificate = a.sign(t, template, template, a.key, a.File)
	a.Pool.AddCert(a.certificate)
	return a
}

// Issue creates a certificate with a common name, for clients of the name spiffe://test/NAME and for
// servers at 127.0.0.1 and localhost. It returns the names of new PEM files.
func (a *Authority) Issue(t testing.TB, name string) (certificate, key string) {
	t.Helper()
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	private := newKey(t)
	template := a.template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.URIs = []*url.URL{{Scheme: "spiffe", Host: "test", Path: "/" + name}}
	template.IPAddresses, template.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	a.sign(t, template, a.certificate, private, certificate)
	write(t, key, "PRIVATE KEY", must.Get(x509.MarshalPKCS8PrivateKey(private))(t))
	return certificate, key
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	return must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func (a *Authority) template(name string) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func (a *Authority) sign(t testing.TB, template, parent *x509.Certificate, key *ecdsa.PrivateKey, path string) *x509.Certificate {
	t.Helper()
	signed := must.Get(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key))(t)
	write(t, path, "CERTIFICATE", signed)
	return must.Get(x509.ParseCertificate(signed))(t)
}

func write(t testing.TB, path, kind string, content []byte) {
	t.Helper()
	must.OK(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
}
