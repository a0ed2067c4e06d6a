package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"weir/internal/nightly"
)

// searched are words that people look for, and a page that the search then has among the first three.
var searched = map[string]string{
	"login": "cookbook", "ipv6_prefix": "configuration", "tenant": "cookbook", "kubernetes": "kubernetes", "helm": "kubernetes",
	"gcra": "how-it-counts", "openai": "tokens",
}

// TestSite makes the documents a site, and wants its search to find words by their parts and by other
// words for the same, and its landing page to be whole in both themes.
func TestSite(t *testing.T) {
	t.Parallel()
	if !nightly.On() {
		return // make docs needs a minute, and an environment of Python
	}
	if out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "docs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := httptest.NewServer(http.FileServerFS(os.DirFS("../../dist/docs")))
	t.Cleanup(server.Close)
	for _, theme := range themes {
		for _, width := range widths {
			p := tabOf(t, server.URL, look{width: width, height: 900, theme: theme, path: "/index.html"})
			p.until(`[...document.querySelectorAll(".doors a")].filter((e) => e.checkVisibility()).length === 5`)
			p.until(`[...document.images].filter((e) => e.checkVisibility() && e.src.includes("two-proxies") && e.naturalWidth > 0).length === 1`)
			if over := value[int64](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("%s-%d: the page is %d wider than the window", theme, width, over)
			}
		}
	}
	p := tabOf(t, server.URL, look{width: 1440, height: 900, theme: "light", path: "/index.html"})
	for word, page := range searched {
		p.run(fmt.Sprintf(`{ const q = document.querySelector(".md-search__input"); q.focus(); q.value = %q; q.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true})) }`, word))
		p.until(fmt.Sprintf(`[...document.querySelectorAll(".md-search-result__item")].slice(0, 3).some((e) => e.querySelector("a").href.includes("/%s.html"))`, page))
	}
}
