package browser

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// refusing has a rule whose keys can be read, a rule that blocks networks, and a rule that each node counts
// alone.
const refusing = `{
  "namespace": "shop", "sync_rate": 0.1, "backend": {"cluster": "weir", "timeout": "30s"},
  "rules": [
    {"name": "per-user", "key": [{"header": "x-user"}], "reveal": "plain",
     "limits": [{"limit": 10, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "login", "key": ["client_ip"], "block": "10m", "match": {"path": {"exact": "/login"}},
     "limits": [{"limit": 5, "window": "1m", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "alone", "sync_rate": -1, "limits": [{"limit": 500, "window": "1h"}]}
  ]
}`

// TestLiveTellsWhy asks why a key is refused: of a hot key by the keyboard, and of a key that is typed.
func TestLiveTellsWhy(t *testing.T) {
	t.Parallel()
	p := visit(t, nodesOf(t, refusing), liveLook)
	told := func(text string) {
		t.Helper()
		p.until(fmt.Sprintf(`document.getElementById("why-told").textContent === %q`, text))
	}
	fact := func(text string) {
		t.Helper()
		p.until(fmt.Sprintf(`[...document.querySelectorAll("#why-facts li")].some((e) => e.textContent === %q)`, text))
	}
	row := func(pattern string) {
		t.Helper()
		p.until(fmt.Sprintf(`new RegExp(%q).test([...document.querySelectorAll("#why-limits :is(b, p)")].map((e) => e.textContent).join("|"))`, pattern))
	}
	p.until(`document.querySelectorAll("#nodes .node").length === 2 && !document.getElementById("look-up").hidden`)
	p.click("[data-burst='20']")
	const hot = `[...document.querySelectorAll("#tables tbody th button")].find((e) => e.textContent === "user-1")`
	p.until(hot)
	p.run(hot + `.focus()`)
	p.do(chromedp.KeyEvent(kb.Enter))
	told("user-1 is refused by per-user: 10 of 10 in 1 hour.")
	row(`^10 in 1 hour \(first hit window\)\|10 used, 0 left: one passes in \d+ (min|s)( \d+ s)?, all back in \d+ (min|s)( \d+ s)?$`)
	p.until(`/^One passes in \d+ (min|s)( \d+ s)?\.$/.test(document.getElementById("why-next").textContent)`)
	fact("No override is in force: the limits are the rule’s.")
	must.Equal(t, value[bool](p, `document.activeElement.id === "why-title"`), true, "the answer does not have the focus")

	// The answer follows what happens.
	p.types("#new-limits-0", "25")
	p.click("#set-limit")
	told("user-1 passes per-user: 10 of 25 in 1 hour.")
	row(`^25 in 1 hour \(first hit window\)\|10 used, 15 left: one passes now, `)
	fact("An override of this key decides: 25 in 1 hour, until somebody unsets it.")
	p.click("#unset-limit")
	told("user-1 is refused by per-user: 10 of 10 in 1 hour.")
	p.click("#away")
	fact("These are the backend’s numbers. Proxies that do not reach it decide alone, by what they know.")
	p.click("#away")

	// Any other key can be asked for. A name is text, whatever it looks like.
	const name = `<img src=x>`
	p.click("#look-up summary")
	p.types("#why-key input", name)
	p.click("#why-form button")
	told(name + " passes per-user: 0 of 10 in 1 hour.")
	row(`^10 in 1 hour \(first hit window\)\|0 used, 10 left: one passes now$`)
	p.until(`document.getElementById("act-command-reset").textContent.startsWith("weir counter reset shop per-user '<img src=x>' --backend ")`)
	must.Equal(t, value[int](p, `document.images.length`), 0, "pictures are in the page")

	// The key of another rule has other parts, and a wrong value is told of.
	p.choose("why-rule", "login")
	p.types("#why-key input", "ann")
	p.click("#why-form button")
	told(`key: want an address for value 1 of the key of login, got "ann"`)
	p.until(`document.getElementById("why-limits").children.length === 0 && document.getElementById("act").hidden`)
	p.expect()
	for range 6 {
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.text("#nodes .status")+"/login", nil))(t)
		answer := must.Get(envoytest.Client.Do(r))(t)
		answer.Body.Close()
	}
	p.types("#why-key input", "127.0.0.1")
	p.click("#why-form button")
	told("127.0.0.1 is blocked by login, whatever room it has.")
	p.until(`[...document.querySelectorAll("#why-facts li")].some((e) => /^A block is in force, and ends in \d+ min/.test(e.textContent))`)
	must.Equal(t, value[string](p, `[...document.getElementById("why-rule").options].map((o) => o.value).join()`), "per-user,login", "the form has the rules")
	looksWell(p)

	// The counter is emptied by the page, with a reason, and the drawer closes by the keyboard.
	p.types("#act-reason", "let them in")
	p.click("#act-reset")
	p.until(says("act-told", "The counter is empty."))
	told("127.0.0.1 passes login: 0 of 5 in 1 minute.")
	p.until(says("changes-list", "reset counter: login"))
	p.run(`document.getElementById("act-reset").focus()`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`document.getElementById("why").hidden`)
}
