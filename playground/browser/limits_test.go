package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"weir/internal/must"
)

// limited has a rule of two limits, a rule with a single counter, and a rule of whose keys no backend knows.
const limited = `{
  "namespace": "shop", "sync_rate": 0.1, "backend": {"cluster": "weir", "timeout": "30s"},
  "rules": [
    {"name": "per-user", "key": [{"header": "x-user"}], "reveal": "plain",
     "limits": [{"limit": 10, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"},
       {"limit": 1000, "window": "1d", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "-all", "limits": [{"limit": 500, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]},
    {"name": "alone", "sync_rate": -1, "limits": [{"limit": 500, "window": "1h"}]}
  ]
}`

// TestLiveSetsAnyLimit sets limits of each shared rule, for the page's users and for a single key, and takes
// them back. A number that can't be is told of. Each change is recorded.
func TestLiveSetsAnyLimit(t *testing.T) {
	t.Parallel()
	p := visit(t, nodesOf(t, limited), liveLook)
	p.until(`document.querySelectorAll("#nodes .node").length === 2 && !document.getElementById("do-limit").hidden`)
	told := func(text string) {
		t.Helper()
		p.until(fmt.Sprintf(`document.getElementById("limit-told").textContent === %q`, text))
	}
	shown := func(want string) {
		t.Helper()
		p.until(fmt.Sprintf(`[...document.querySelectorAll("#new-limits .field")].map((f) => f.textContent + "=" + f.querySelector("input").value).join() === %q`, want))
	}
	must.Equal(t, value[string](p, `[...document.getElementById("limit-rule").options].map((o) => o.value).join()`), "per-user,-all", "limits can be set of")

	// The second limit, by the keyboard's Enter as by the button.
	shown("Hits in 1 hour=10,Hits in 1 day=1000")
	p.types("#new-limits-0", "30")
	p.types("#new-limits-1", "25"+kb.Enter)
	told("per-user: 30 in 1 hour, 25 in 1 day.")
	p.slide("load-rate", 100)
	p.until(curve("per-user: in 1 day", "25 of 25"))
	p.until(curve("per-user: in 1 hour", "25 of 30"))
	p.slide("load-rate", 0)

	// The rule with a single counter, whose limit the page's users share.
	p.choose("limit-rule", "-all")
	shown("Hits in 1 hour=500")
	p.types("#new-limits-0", "40")
	p.click("#set-limit")
	told("-all: 40 in 1 hour.")
	p.until(curve("-all: in 1 hour", "25 of 40"))

	// A name that would be a flag is none in the command to copy.
	p.click("#look-up summary")
	p.choose("why-rule", "-all")
	p.click("#why-form button")
	p.until(`document.getElementById("act-command-reset").textContent.startsWith("weir counter reset shop -- -all --backend ")`)
	p.click("#look-up summary")

	// A single key.
	p.choose("limit-rule", "per-user")
	shown("Hits in 1 hour=30,Hits in 1 day=25")
	p.click("#look-up summary")
	p.choose("why-rule", "per-user")
	p.types("#why-key-0", "ann")
	p.click("#why-form button")
	p.until(says("why-told", "ann passes per-user: 0 of 10 in 1 hour."))
	p.until(`document.querySelectorAll("#act-limits input").length === 2`)
	p.types("#act-limits-0", "77")
	p.types("#act-limits-1", "25")
	p.choose("act-until", "")
	p.click("#act-set")
	must.Equal(t, value[bool](p, `document.getElementById("act-reason").validity.valid`), false, "a change wants no reason")
	p.types("#act-reason", "ann's import")
	p.until(`document.getElementById("act-command-set").textContent.startsWith("weir override set shop per-user ann 77/1h 25/1d --reason 'ann'\\''s import' --backend http://127.0.0.1:")`)
	p.click("#act-set")
	p.until(says("act-told", "The limit is 77 in 1 hour, 25 in 1 day."))
	p.until(`[...document.querySelectorAll("#why-facts li")].some((e) => e.textContent === "An override of this key decides: 77 in 1 hour, 25 in 1 day, until somebody unsets it.")`)
	p.until(says("changes-list", "set override: per-user"))
	p.until(says("changes-list", "by anybody from 127.0.0.1: ann's import"))
	p.click("#act-unset")
	p.until(says("act-told", "The override is removed."))
	p.until(`[...document.querySelectorAll("#why-facts li")].some((e) => e.textContent === "No override is in force: the limits are the rule’s.")`)
	p.click("#why-close")

	// A number that can't be is not sent, or is told of.
	p.types("#new-limits-0", "-5")
	p.click("#set-limit")
	must.Equal(t, value[bool](p, `document.getElementById("new-limits-0").validity.valid`), false, "-5 is a limit")
	p.run(`document.getElementById("new-limits-0").removeAttribute("max")`)
	p.types("#new-limits-0", "2000000")
	p.click("#set-limit")
	p.until(says("live-notice", "Refused: limits[0]: want 0 to 1000000, got 2000000"))
	p.expect()

	// All that was set of the rule goes back, and of no other.
	p.click("#unset-limit")
	told("per-user: as configured.")
	shown("Hits in 1 hour=10,Hits in 1 day=1000")
	p.until(`document.getElementById("live-notice").hidden`)
	p.choose("limit-rule", "-all")
	shown("Hits in 1 hour=40")
	looksWell(p)
}
