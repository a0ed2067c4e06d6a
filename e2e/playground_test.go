package e2e

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
)

// TestRunServesThePlayground wants weir run to print the address of the page, and to serve the page
// with its engine: on a free port, because the usual port is taken.
func TestRunServesThePlayground(t *testing.T) {
	t.Parallel()
	// From here on the usual address is taken, by this test or another program.
	if l, err := net.Listen("tcp", "127.0.0.1:9181"); err == nil {
		t.Cleanup(func() { l.Close() })
	}
	p := start(t, "run", "--listen", "127.0.0.1:0", "--nodes", "1", "--workers", "1")
	page := p.Wait(t, `^playground +(http://\S+)`)
	for path, want := range map[string]string{"": "<!doctype html>", "engine.wasm": "\x00asm", "pair.wasm": "\x00asm"} {
		body := fetch(t, page+path)
		must.Equal(t, body[:min(len(body), len(want))], want, "%s%s begins with", page, path)
	}
}

// TestPagesEndWithTheCommand keeps pages open while the command ends, which does not wait for them.
func TestPagesEndWithTheCommand(t *testing.T) {
	t.Parallel()
	for path, p := range map[string]*commandtest.Process{
		"live/events":             start(t, "run", "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "--nodes", "1", "--workers", "1"),
		"v1/watch?namespace=shop": start(t, "serve", "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0"),
	} {
		page := p.Wait(t, `(?:playground +|the page is served" address=)(\S+)`)
		if !strings.HasPrefix(page, "http") {
			page = "http://" + page + "/"
		}
		response := must.Get(envoytest.Client.Get(page + path))(t)
		t.Cleanup(func() { response.Body.Close() })
		begins := make([]byte, 6)
		_, err := io.ReadFull(response.Body, begins)
		must.Reportf(t, err, "%s: status %d", path, response.StatusCode)
		must.Equal(t, string(begins), "event:", "%s", path)
		must.Reportf(t, p.End(), "%s", path)
		_, err = io.Copy(io.Discard, response.Body)
		must.Reportf(t, err, "%s was cut off", path)
	}
}

// TestTheLiveViewIsLocal wants the page without the live view if other machines can reach it.
func TestTheLiveViewIsLocal(t *testing.T) {
	t.Parallel()
	p := start(t, "run", "--listen", "127.0.0.1:0", "--ui", "0.0.0.0:0", "--nodes", "1", "--workers", "1")
	_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(p.Wait(t, `^playground +(http://\S+) \(without the live view`), "http://"), "/"))
	must.OK(t, err)
	for path, want := range map[string]int{"/": http.StatusOK, "/live/events": http.StatusNotFound} {
		must.Equal(t, ask(t, envoytest.Client, "http://127.0.0.1:"+port, ":path", path).status, want, "%s: status", path)
	}
}

func TestRunWithoutThePlayground(t *testing.T) {
	t.Parallel()
	p := start(t, "run", "--listen", "127.0.0.1:0", "--ui", "none", "--nodes", "1", "--workers", "1")
	p.Wait(t, `^try +(curl)`)
	must.Equal(t, strings.Contains(p.Printed(), "playground"), false, "--ui none prints of a playground:\n%s", p.Printed())
}
