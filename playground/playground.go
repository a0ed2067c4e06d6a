// Package playground is a web page on which one sees what the algorithms decide. Its lanes are package
// lane as WebAssembly, which make build puts beside the page's files.
package playground

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed site
var embedded embed.FS

// engine is the file that make build makes.
const engine = "engine.wasm"

const own = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "

// Policy is the content security policy: nothing from elsewhere, and nothing that stands in the page
// itself is run. No other page may frame it.
const Policy = own + "'none'"

// framed is the policy of a page that shows one lane, which any page may frame: nothing in it has
// effects.
const framed = own + "*"

// Files are the page's, for any server that serves files.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "site")
	if err != nil {
		return embedded // a constant name is valid
	}
	return files
}

// Built reports whether the engine is embedded. A command that was built by hand may lack it: make
// build builds it first. The page says so too.
func Built() bool {
	_, err := fs.Stat(Files(), engine)
	return err == nil
}

// Handler serves the page, compressed.
func Handler() http.Handler {
	files := Files()
	var kept sync.Map // compressed, by name
	plain := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("content-security-policy", policy(r))
		h.Set("x-content-type-options", "nosniff")
		h.Set("referrer-policy", "no-referrer")
		h.Set("cache-control", "no-cache")
		h.Set("vary", "accept-encoding")
		name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
		if name == "" {
			name = "index.html"
		}
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

// policy is that of a request's page.
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
	if err != nil { // a buffer takes everything, and the level is one
		return nil
	}
	return small.Bytes()
}

// typeOf is a file's content type. A machine's own table may have others.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".wasm":
		return "application/wasm"
	}
	return mime.TypeByExtension(path.Ext(name))
}
