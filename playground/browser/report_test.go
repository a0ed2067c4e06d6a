package browser

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// TestReport has weir simulate write its report, and wants a look to tell who is refused, and nothing to be cut off
// on a phone, with all folds open.
func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const line = ` - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	log := file("access.log", strings.Repeat("198.51.100.66"+line, 40)+strings.Repeat("2001:db8:1234:5678:9abc:def0:1234:5678"+line, 30)+"no request\n")
	rules := file("rules.json", `{"rules": [{"name": "per-address", "key": ["client_ip"], "limits": [{"limit": 20, "window": "1m"}, {"limit": 25, "window": "1h", "algorithm": "token_bucket"}]}]}`)
	commandtest.Run(t, exec.CommandContext(t.Context(), "../../dist/weir", "simulate", "--config", rules, "--html", filepath.Join(dir, "report.html"), log))
	file("favicon.ico", "")
	server := httptest.NewServer(http.FileServerFS(os.DirFS(dir)))
	t.Cleanup(server.Close)
	code := axe(t)
	for _, theme := range themes {
		for _, width := range widths {
			p := tabOf(t, server.URL, look{width: width, height: 900, theme: theme, path: "/report.html"})
			p.until(`document.querySelector(".headline")?.textContent === "198.51.100.66 has 66.7 % of the refusals, by per-address."`)
			p.run(`document.querySelectorAll("details").forEach((e) => { e.open = true })`)
			fits(p)
			p.run(code) // it can't tell the ground of texts in a picture, so that some are left undecided
			found := value[json.RawMessage](p, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) => ({id: v.id, first: v.nodes[0].html})))`)
			must.Equal(t, string(found), "[]", "what axe-core finds")
		}
	}
}
