package trust

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/trust/trusttest"
)

// clock stands still until it is advanced.
type clock struct{ at time.Time }

func (c *clock) now() time.Time          { return c.at }
func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

func newClock() *clock { return &clock{time.Unix(1_767_225_600, 0)} }

func TestTokensOfAFile(t *testing.T) {
	tokens := must.Get(tokensOf(t, "# of all\n\nroot-token\r\nshop s3cret\nshop  next\n\tapi\ts3cret\n # one more\n"))(t)
	for token, want := range map[string][]string{
		"root-token": {"shop", "api", "any.thing"}, "s3cret": {"shop", "api"}, "next": {"shop"},
		"": nil, "s3cre": nil, "s3crett": nil, "shop": nil, "#": nil, "S3CRET": nil, "shop s3cret": nil,
	} {
		client, ok := tokens.Client(token, nil)
		must.Equal(t, ok, want != nil, "%q: known", token)
		for _, namespace := range []string{"shop", "api", "any.thing", ""} {
			allowed := token == "root-token" || slices.Contains(want, namespace)
			must.Equal(t, client.May(ChangeCounter, namespace) == Allowed, allowed, "%q: allowed %q %v", token, namespace, !allowed)
		}
	}
	must.Equal(t, (&Client{}).May(GetTop, "shop") == Allowed, false, "nobody's scope allows a namespace")
}

func TestTokensThatAreNone(t *testing.T) {
	for content, want := range map[string]string{
		"":                                       "want at least one token",
		"# hunter2\n":                            "want at least one token",
		"ok\nshop hunter2 more":                  "line 2: want a token",
		"hunter2! hunter2":                       "line 1: want a token",
		"hünter2":                                "line 1: want a token",
		"\nshop\x00 hunter2":                     "line 2: want a token",
		strings.Repeat("hunter2", 8192/7+1):      "line 1: want a token",
		strings.Repeat("hunter2\n", (1<<20)/8+1): "want at most 1048576 bytes",
	} {
		_, err := tokensOf(t, content)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.20q: error %v, want one with %s, without the token", content, err, want)
		}
		if _, err := OneToken(content); (err == nil) != (content == "hunter2") || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.20q: error %v, want one without the token", content, err)
		}
	}
	_, err := ReadTokens(filepath.Join(t.TempDir(), "none"), newClock().now, slog.New(slog.DiscardHandler))
	must.Is(t, err, os.ErrNotExist, "")
}

// A changed file is read again. The error of an invalid file is logged once, and the old contents
// stay.
func TestTokensAreReadAgain(t *testing.T) {
	var log bytes.Buffer
	c := newClock()
	path := must.File(t, filepath.Join(t.TempDir(), "tokens"), "shop first")
	tokens := must.Get(ReadTokens(path, c.now, slog.New(slog.NewTextHandler(&log, nil))))(t)
	known := func(want ...string) {
		t.Helper()
		for _, token := range []string{"first", "second", "third"} {
			_, ok := tokens.Client(token, nil)
			must.Equal(t, ok, slices.Contains(want, token), "%s: known", token)
		}
	}
	known("first")
	must.File(t, path, "shop first\nshop second")
	known("first") // the file is checked once a second
	c.advance(time.Second)
	known("first", "second")
	for range 3 {
		must.File(t, path, "shop second!ü")
		c.advance(time.Second)
		known("first", "second")
		must.OK(t, os.Remove(path))
		c.advance(time.Second)
		known("first", "second")
	}
	must.Equal(t, strings.Count(log.String(), "level=ERROR"), 1, "errors logged, want one:\n%s", &log)
	must.File(t, path, "shop second")
	c.advance(-time.Hour) // the clock is set back
	known("second")
	must.File(t, path, "")
	c.advance(time.Second)
	known("second")
	must.Equal(t, strings.Count(log.String(), "level=ERROR"), 2, "errors logged in\n%s", &log)
	must.Lacks(t, log.String(), "second", "log")
	must.File(t, path, "third")
	c.advance(time.Second)
	known("third")
}

// shake connects a client to a server in memory, and returns the server's state of the connection.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	seen := make(chan tls.ConnectionState, 1)
	go func() {
		conn := tls.Server(far, server)
		if conn.Handshake() == nil {
			seen <- conn.ConnectionState()
			_, _ = conn.Write([]byte("ok"))
		}
		close(seen)
		_ = far.Close()
	}()
	conn := tls.Client(near, client)
	if err := conn.Handshake(); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := io.ReadFull(conn, make([]byte, 2)); err != nil {
		return tls.ConnectionState{}, err
	}
	return <-seen, nil
}

// replace replaces a file's contents with another's.
func replace(t *testing.T, path, with string) {
	t.Helper()
	must.File(t, path, must.Text(t, with))
}

func pair(t *testing.T, certificate, key string) []tls.Certificate {
	t.Helper()
	return []tls.Certificate{must.Get(tls.LoadX509KeyPair(certificate, key))(t)}
}

func TestCertificatesAreReadAgain(t *testing.T) {
	c := newClock()
	old, next := trusttest.New(t), trusttest.New(t)
	certificate, key := old.Issue(t, "old")
	files := CertificateFiles{Certificate: certificate, Key: key, ClientCA: must.File(t, filepath.Join(t.TempDir(), "ca"), "")}
	replace(t, files.ClientCA, old.File)
	server := must.Get(Certificates(files, c.now, slog.New(slog.DiscardHandler)))(t)
	ofOld := pair(t, certificate, key)
	newCertificate, newKey := next.Issue(t, "next")
	ofNext := pair(t, newCertificate, newKey)
	want := func(roots *x509.CertPool, client []tls.Certificate, shown bool, fails string) {
		t.Helper()
		state, err := shake(t, server, &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: client, NextProtos: []string{"h2"}})
		if fails != "" {
			must.Contains(t, fmt.Sprint(err), fails, "error")
			return
		}
		if err != nil || (CertificateOf(&state) != nil) != shown || state.NegotiatedProtocol != "h2" {
			t.Errorf("error %v, certificate shown %v, protocol %q; want %v, and h2", err, CertificateOf(&state) != nil, state.NegotiatedProtocol, shown)
		}
	}
	want(old.Pool, nil, false, "")
	want(old.Pool, ofOld, true, "")
	want(old.Pool, ofNext, false, "unknown certificate authority")
	want(next.Pool, nil, false, "unknown authority")

	// Half of the new files changes nothing.
	replace(t, files.Certificate, newCertificate)
	c.advance(time.Second)
	want(old.Pool, ofOld, true, "")
	replace(t, files.Key, newKey)
	want(old.Pool, ofOld, true, "")
	c.advance(time.Second)
	want(next.Pool, ofOld, true, "")
	want(old.Pool, nil, false, "unknown authority")
	replace(t, files.ClientCA, next.File)
	c.advance(time.Second)
	want(next.Pool, ofNext, true, "")
	want(next.Pool, ofOld, false, "unknown certificate authority")
	must.File(t, files.ClientCA, "none")
	c.advance(time.Second)
	want(next.Pool, ofNext, true, "")
}

func TestCertificatesThatAreNone(t *testing.T) {
	a := trusttest.New(t)
	certificate, key := a.Issue(t, "one")
	_, other := a.Issue(t, "another")
	text := must.File(t, filepath.Join(t.TempDir(), "text"), "hello")
	for _, test := range []struct {
		files CertificateFiles
		want  string
	}{
		{CertificateFiles{}, "want a certificate and its key"},
		{CertificateFiles{Certificate: certificate}, "want a certificate and its key"},
		{CertificateFiles{Certificate: certificate, Key: other}, "private key does not match public key"},
		{CertificateFiles{Certificate: key, Key: certificate}, "failed to find certificate PEM data"},
		{CertificateFiles{Certificate: certificate, Key: key, ClientCA: text}, "want a certificate in PEM"},
		{CertificateFiles{Certificate: certificate, Key: key + "x"}, "no such file"},
	} {
		_, err := Certificates(test.files, newClock().now, slog.New(slog.DiscardHandler))
		must.Contains(t, fmt.Sprint(err), test.want, "%+v", test.files)
	}
	must.Equal(t, CertificateOf(nil), nil, "the certificate of a connection without TLS")
}

// Tokens from a pipe are read once, and a file that has become a pipe is not opened: that would wait for a
// writer, and so would each client.
func TestPipesAreReadOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c, dir := newClock(), t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), must.File(t, filepath.Join(dir, "file"), "s3cret")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte("s3cret"), 0o600) }()
	for _, path := range []string{pipe, file} {
		tokens := must.Get(ReadTokens(path, c.now, slog.New(slog.NewTextHandler(&log, nil))))(t)
		if path == file {
			must.OK(t, errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)))
		}
		for range 3 {
			c.advance(2 * time.Second)
			_, ok := tokens.Client("s3cret", nil)
			must.Equal(t, ok, true, "%s: the token is taken", path)
		}
	}
	must.OK(t, <-written)
	must.Equal(t, strings.Count(log.String(), "want a regular file"), 1, "lines of a file that is a pipe in\n%s", &log)
	must.Lacks(t, log.String(), "pipe:", "log")
}
