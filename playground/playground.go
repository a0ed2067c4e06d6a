// Package playground is a web page that shows the decisions of all algorithms. Its lanes are
// package lane as WebAssembly, which make build puts beside the page's files.
package playground

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

var (
	//go:embed site
	embedded embed.FS
	//go:embed site/tokens.css
	tokens string
	//go:embed site/fonts/inter.woff2
	font []byte
)

// engine is the name of the file that make build builds.
const engine = "engine.wasm"

const own = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; font-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "

// Policy is the content security policy: the page loads nothing from elsewhere, and runs no inline
// script. No other page may frame it.
const Policy = own + "'none'"

// framed is the policy of a page with a single lane. Any page may frame it, because nothing in it
// has effects.
const framed = own + "*"

// Files returns the files of the page, for any file server.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "site")
	if err != nil {
		return embedded // not reached: the name is valid
	}
	return files
}

// Tokens returns the style sheet of the page's colours and fonts, with the font in it.
func Tokens() string {
	return tokens + `@font-face { font-family: Inter; font-weight: 400 700; src: url("data:font/woff2;base64,` + base64.StdEncoding.EncodeToString(font) + `"); }` + "\n"
}

// Built reports whether the engine is embedded. A command that was built without make build may
// lack it; the page then says so.
func Built() bool {
	_, err := fs.Stat(Files(), engine)
	return err == nil
}

// Handler serves the page, compressed.
func Handler() http.Handler {
	files := Files()
	var kept sync.Map // the compressed files, by name
	plain := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("content-security-policy", policy(r))
		h.Set("x-content-type-options", "nosniff")
		h.Set("referrer-policy", "no-referrer")
		h.Set("cache-control", "no-cache")
		h.Set("vary", "accept-encoding")
		name := cmp.Or(strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/"), "index.html")
		if !strings.Contains(r.Header.Get("accept-encoding"), "gzip") || r.Header.Get("range") != "" || strings.HasSuffix(r.URL.Path, "/index.html") {
			plain.ServeHTTP(w, r)
			return
		}
		small, ok := kept.Load(name)
		if !ok {
			content, err := fs.ReadFile(files, name)
			if err != nil {
				plain.ServeHTTP(w, r)
				return
			}
			small = compress(content)
			kept.Store(name, small)
		}
		h.Set("content-type", typeOf(name))
		h.Set("content-encoding", "gzip")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(small.([]byte)))
	})
}

// policy returns the policy of a request's page.
func policy(r *http.Request) string {
	if r.URL.Path == "/" && r.URL.Query().Has("embed") {
		return framed
	}
	return Policy
}

func compress(content []byte) []byte {
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil { // not reached: a buffer takes all bytes, and the level exists
		return nil
	}
	return small.Bytes()
}

// typeOf returns a file's content type, because a machine's own table may have others.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".wasm":
		return "application/wasm"
	case ".woff2":
		return "font/woff2"
	}
	return mime.TypeByExtension(path.Ext(name))
}
