package e2e

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestRunServesThePlayground wants weir run to print where the page is, and the page to be there with
// its engine: on a free port, as the usual one is taken.
func TestRunServesThePlayground(t *testing.T) {
	t.Parallel()
	// The usual address is taken from here on, whoever has it.
	if l, err := net.Listen("tcp", "127.0.0.1:9181"); err == nil {
		t.Cleanup(func() { l.Close() })
	}
	p := start(t, "run", "--listen", "127.0.0.1:0", "--nodes", "1", "--workers", "1")
	page := p.wait(t, `^playground +(http://\S+)`)
	for path, want := range map[string]string{"": "<!doctype html>", "engine.wasm": "\x00asm"} {
		response, err := http.Get(page + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), want) {
			t.Errorf("%s%s: status %d, %.20q", page, path, response.StatusCode, body)
		}
	}
}

func TestRunWithoutThePlayground(t *testing.T) {
	t.Parallel()
	p := start(t, "run", "--listen", "127.0.0.1:0", "--ui", "none", "--nodes", "1", "--workers", "1")
	p.wait(t, `^try +(curl)`)
	if strings.Contains(p.printed(), "playground") {
		t.Errorf("--ui none prints\n%s", p.printed())
	}
}
