package playground_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/playground"
)

func get(t *testing.T, url, encoding string) (*http.Response, []byte) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	request.Header.Set("accept-encoding", encoding)
	response := must.Get(http.DefaultTransport.RoundTrip(request))(t)
	defer response.Body.Close()
	body := must.Get(io.ReadAll(response.Body))(t)
	return response, body
}

// TestHandler wants each file as it is, compressed or not, with the policy and its type.
func TestHandler(t *testing.T) {
	server := httptest.NewServer(playground.Handler())
	t.Cleanup(server.Close)
	types := map[string]string{
		"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
		"svg": "image/svg+xml", "json": "application/json", "wasm": "application/wasm",
		"woff2": "font/woff2", "txt": "text/plain; charset=utf-8",
	}
	compressed, proxies := 0, 0
	must.OK(t, fs.WalkDir(playground.Files(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := fs.ReadFile(playground.Files(), path)
		if err != nil {
			return err
		}
		url := server.URL + "/" + strings.TrimSuffix(path, "index.html")
		for _, encoding := range []string{"identity", "gzip, br"} {
			response, body := get(t, url, encoding)
			if encoding != "identity" {
				compressed += len(body)
				if path == "pair.wasm" {
					proxies = len(body)
				}
				r, err := gzip.NewReader(strings.NewReader(string(body)))
				if err != nil {
					return err
				}
				if body, err = io.ReadAll(r); err != nil {
					return err
				}
			}
			h := response.Header
			must.Equal(t, response.StatusCode, http.StatusOK, "%s: status", path)
			must.Equal(t, string(body) == string(want), true, "%s: %d bytes are the %d of the file", path, len(body), len(want))
			must.Equal(t, h.Get("content-type"), types[path[strings.LastIndex(path, ".")+1:]], "%s is", path)
			if h.Get("content-security-policy") != playground.Policy || h.Get("x-content-type-options") != "nosniff" || h.Get("vary") != "accept-encoding" {
				t.Errorf("%s: %v", path, h)
			}
		}
		return nil
	}))
	// The proxies' module is loaded by readers who come as far.
	must.AtMost(t, compressed-proxies, 1<<20, "bytes of the page")
	must.AtMost(t, proxies, 5<<18, "bytes of its proxies")
	for path, want := range map[string]string{"/": "frame-ancestors 'none'", "/?embed=sliding-log": "frame-ancestors *", "/main.js?embed=": "frame-ancestors 'none'"} {
		response, _ := get(t, server.URL+path, "gzip")
		if got := response.Header.Get("content-security-policy"); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, path := range []string{"/nothing.js", "/../playground.go", "/site/"} {
		response, _ := get(t, server.URL+path, "gzip")
		must.Equal(t, response.StatusCode, http.StatusNotFound, "%s: status", path)
	}
}

// TestStaticPolicy wants the page to have the same policy where a server sends none. Only who may
// frame it a page can't say of itself.
func TestStaticPolicy(t *testing.T) {
	page := must.Get(fs.ReadFile(playground.Files(), "index.html"))(t)
	want := fmt.Sprintf(`<meta http-equiv="Content-Security-Policy" content="%s">`, strings.TrimSuffix(playground.Policy, "; frame-ancestors 'none'"))
	must.Contains(t, string(page), want, "the page")
}

// TestNothingFromElsewhere wants no file to name another host, but for namespaces and links for people.
func TestNothingFromElsewhere(t *testing.T) {
	address := regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]+`)
	must.OK(t, fs.WalkDir(playground.Files(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".wasm") || strings.HasPrefix(path, "fonts/") {
			return err // a font's licence names its authors
		}
		text, err := fs.ReadFile(playground.Files(), path)
		if err != nil {
			return err
		}
		for _, found := range address.FindAllString(string(text), -1) {
			must.Equal(t, found, "http://www.w3.org", "%s names", path)
		}
		return nil
	}))
}
