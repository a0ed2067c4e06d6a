package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// CertificateFiles are the names of PEM files.
type CertificateFiles struct {
	// Certificate is the server's certificate chain. Key is its private key, not encrypted.
	Certificate, Key string
	// ClientCA has the certificates of the authorities that sign clients' certificates; empty if
	// clients need none.
	ClientCA string
}

// Certificates returns a server's configuration for TLS 1.2 or later, with HTTP/2 and HTTP/1.1.
// When clients connect, it checks the files again, once a second by the clock now. While their
// content is invalid, the previous certificates stay in use, and an error is logged.
//
// A client's certificate is verified if there is one. Whether it is required is up to the handler,
// which can ask [CertificateOf].
func Certificates(f CertificateFiles, now func() time.Time, log *slog.Logger) (*tls.Config, error) {
	if f.Certificate == "" || f.Key == "" {
		return nil, errors.New("want a certificate and its key")
	}
	paths := []string{f.Certificate, f.Key}
	if f.ClientCA != "" {
		paths = append(paths, f.ClientCA)
	}
	file := &files[*tls.Config]{paths: paths, now: now, log: log, parse: func(contents [][]byte) (*tls.Config, error) {
		certificate, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", f.Certificate, f.Key, err)
		}
		config := &tls.Config{
			Certificates: []tls.Certificate{certificate},
			MinVersion:   tls.VersionTLS12,
			NextProtos:   []string{"h2", "http/1.1"},
		}
		if f.ClientCA != "" {
			config.ClientAuth = tls.VerifyClientCertIfGiven
			if config.ClientCAs, err = authorities(f.ClientCA, contents[2]); err != nil {
				return nil, err
			}
		}
		return config, nil
	}}
	if err := file.open(); err != nil {
		return nil, err
	}
	config := file.get().Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return file.get(), nil }
	return config, nil
}

// Authorities reads a PEM file with the certificates of the authorities that sign servers'
// certificates.
func Authorities(path string) (*x509.CertPool, error) {
	content, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	return authorities(path, content)
}

func authorities(path string, content []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s: want a certificate in PEM", path)
	}
	return pool, nil
}

// CertificateOf returns the verified certificate that a connection's client has shown; nil for none. A
// connection without TLS has a nil state.
func CertificateOf(c *tls.ConnectionState) *x509.Certificate {
	if c == nil || len(c.VerifiedChains) == 0 {
		return nil
	}
	return c.PeerCertificates[0]
}
