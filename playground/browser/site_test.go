package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/internal/check"
	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/nightly"
)

// searched are words that people look for, and a page that the search then has among the first three.
var searched = map[string]string{
	"login": "cookbook", "ipv6_prefix": "configuration", "tenant": "cookbook", "kubernetes": "kubernetes", "helm": "kubernetes",
	"gcra": "how-it-counts", "openai": "tokens",
	"why was i refused": "faq", "429 but i sent three": "faq", "limit per user across pods": "faq", "exclude health checks": "faq",
	"why does it wait": "faq", "reset one user": "faq", "tpm per team": "faq", "limit by jwt claim": "faq", "wrong client ip": "faq",
	"redis down": "faq", "dry run": "faq", "custom error response": "faq", "different limit per plan": "faq", "websocket": "faq",
}

// TestSite makes the documents a site, and wants its landing page to be whole in both themes. Its search finds
// words by their parts and by other words for the same, from a folder, too. Copying
// a sample copies what is typed. Each recipe is right in each of its tabs. Each picture of an algorithm has its lane of the playground below it.
func TestSite(t *testing.T) {
	t.Parallel()
	if !nightly.On() {
		return // make docs needs a minute, and an environment of Python
	}
	commandtest.Run(t, exec.CommandContext(t.Context(), "make", "-C", "../..", "docs"))
	server := httptest.NewServer(http.FileServerFS(os.DirFS("../../dist/docs")))
	t.Cleanup(server.Close)
	for _, theme := range themes {
		for _, width := range widths {
			p := tabOf(t, server.URL, look{width: width, height: 900, theme: theme, path: "/index.html"})
			p.until(`[...document.querySelectorAll(".doors a")].filter((e) => e.checkVisibility()).length === 6`)
			p.until(`[...document.images].filter((e) => e.checkVisibility() && e.src.includes("two-proxies") && e.naturalWidth > 0).length === 1`)
			must.AtMost(t, value[int64](p, "document.documentElement.scrollWidth - innerWidth"), 0, "%s-%d: pixels by which the page is wider than the window", theme, width)
		}
	}
	recipes := tabOf(t, server.URL, look{width: 1440, height: 900, theme: "light", path: "/docs/cookbook.html"})
	tabs := value[[]string](recipes, `[...document.querySelectorAll(".tabbed-block code")].map((e) => e.textContent)`)
	programs := 0
	for _, text := range tabs {
		if strings.Contains(text, "ratelimit.NewNamespace(") { // TestCookbook runs it
			programs++
			continue
		}
		report := check.File("recipe.yaml", []byte(text))
		must.Equal(t, report.Configurations, 1, "configurations in\n%s", text)
		for _, f := range report.Findings {
			must.Equal(t, f.Warning, true, "%s: %s in\n%s", f.Path, f.Problem, text)
		}
	}
	must.AtLeast(t, len(tabs), 40, "recipes in tabs")
	must.AtLeast(t, programs, 11, "recipes in tabs for Go")
	lanes := tabOf(t, server.URL, look{width: 1440, height: 900, theme: "light", path: "/docs/how-it-counts.html"})
	for i := range 6 {
		lanes.run(fmt.Sprintf(`document.querySelectorAll("details.lane")[%d].open = true; document.querySelectorAll("details.lane iframe")[%[1]d].scrollIntoView()`, i))
		lanes.until(fmt.Sprintf(`document.querySelectorAll("details.lane iframe")[%d].contentDocument?.querySelector("#lanes")?.children.length === 1`, i))
	}
	folder := must.Get(filepath.Abs("../../dist/docs"))(t)
	for _, at := range []string{server.URL, "file://" + folder} {
		p := tabOf(t, at, look{width: 1440, height: 900, theme: "light", path: "/index.html"})
		search := func(words string) { // at once: each key has all pages searched, which is long beside other work
			for _, value := range []string{"", words} {
				p.run(fmt.Sprintf(`{ const e = document.querySelector(".md-search__input"); e.focus(); e.value = %q; e.dispatchEvent(new KeyboardEvent("keyup")) }`, value))
				p.until(fmt.Sprintf(`(document.querySelector(".md-search-result__item") === null) === %v`, value == ""))
			}
		}
		for word, page := range searched {
			search(word)
			p.until(fmt.Sprintf(`[...document.querySelectorAll(".md-search-result__item")].slice(0, 3).some((e) => e.querySelector("a").href.includes("/%s.html"))`, page))
		}
		for digit := range 10 { // lunr fails for some of them, by what the pages say, unless pages.py mends it
			search(fmt.Sprint(digit))
		}
		const sample = `[...document.querySelectorAll(".md-content code")].find((e) => e.textContent.includes("429 429"))`
		p.run(sample + `.setAttribute("data-md-copying", "")`)
		if copied := value[string](p, sample+`.innerText`); !strings.Contains(copied, "make run") || strings.Contains(copied, "$ make") || strings.Contains(copied, "429 429") {
			t.Errorf("%s: of a sample's commands this is copied: %q", at, copied)
		}
	}
	list := must.Get(os.ReadFile(filepath.Join(folder, "llms.txt")))(t)
	pages := regexp.MustCompile(`\]\((.*)\)`).FindAllStringSubmatch(string(list), -1)
	for _, page := range pages {
		_, err := os.Stat(filepath.Join(folder, page[1]))
		must.Report(t, err)
	}
	must.AtLeast(t, len(pages), 20, "pages that llms.txt lists")
}
