package e2e

import (
	"fmt"
	"testing"

	"weir/internal/host"
)

// A worker that starts after others have counted keeps the pages of a request's rules apart.
func TestPagesOfSeveralRules(t *testing.T) {
	onWazeroAlone(t, pagesOfSeveralRules)
}

func pagesOfSeveralRules(t *testing.T) {
	const configuration = `{"capacity": 64, "rules": [
		{"name": "a", "key": [{"header": "x-user"}], "limits": [{"limit": 100, "window": "1h"}]},
		{"name": "b", "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "1h"}]}]}`
	process := host.NewProcess(host.ProcessConfig{Clock: newClock().now})
	first := newWorker(t, process, configuration)
	const keys = 12
	for range 3 {
		for i := range keys {
			first.send("x-user", fmt.Sprint("u", i))
		}
	}
	second := newWorker(t, process, configuration)
	for range 3 {
		for i := range keys {
			second.send("x-user", fmt.Sprint("u", i))
		}
	}
	third := newWorker(t, process, configuration)
	for i := range keys {
		third.send("x-user", fmt.Sprint("u", i)).want(t, `x-ratelimit-remaining: 93`)
	}
}
