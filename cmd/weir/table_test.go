package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"weir/internal/envoytest"
	"weir/internal/live"
	"weir/internal/must"
)

func TestTableText(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	before := live.Sample{At: at, Nodes: []live.Node{{}, {Rules: []live.Rule{{Name: "per-user", Allowed: 10}}}}}
	now := live.Sample{At: at.Add(2 * time.Second), Nodes: []live.Node{
		{Pushed: 7, Waited: 3, Rules: []live.Rule{{Name: "per-user", Allowed: 7, Rejected: 1}, {Name: "new", Shadow: true}}},
		{Alone: 1, Failed: 4, Rules: []live.Rule{{Name: "per-user", Allowed: 13, Rejected: 20}, {Name: "new", Shadow: true, Rejected: 5}}},
	}}
	const want = `
          rule  node  allowed  refused  allowed/s    refused/s
      per-user     0        7        1        3.5          0.5
                   1       13       20        1.5         10.0
                 all       20       21        5.0         10.5
  new (shadow)     0        0        0        0.0          0.0
                   1        0        5        0.0          2.5
                 all        0        5        0.0          2.5
                                                             
                node   pushed   waited      alone  lost pushes
                   0        7        3          0            0
                   1        0        0          1            4
`
	trim := func(text string) string { return regexp.MustCompile(` +\n`).ReplaceAllString(text, "\n") }
	must.Equal(t, trim(tableText(before, now)), trim(want), "")
	// A node reports a rule as soon as it has it, and rules change places with new rules.
	later := live.Sample{At: now.At.Add(time.Second), Nodes: []live.Node{
		{Rules: []live.Rule{{Name: "added", Allowed: 3}, {Name: "new", Shadow: true}, {Name: "per-user", Allowed: 9, Rejected: 1}}},
		{Rules: []live.Rule{{Name: "new", Shadow: true, Rejected: 6}, {Name: "only-here", Rejected: 2}, {Name: "per-user", Allowed: 13, Rejected: 20}}},
	}}
	const moved = `
          rule  node  allowed  refused  allowed/s    refused/s
         added     0        3        0        3.0          0.0
                   1        0        0        0.0          0.0
                 all        3        0        3.0          0.0
  new (shadow)     0        0        0        0.0          0.0
                   1        0        6        0.0          1.0
                 all        0        6        0.0          1.0
      per-user     0        9        1        2.0          0.0
                   1       13       20        0.0          0.0
                 all       22       21        2.0          0.0
     only-here     0        0        0        0.0          0.0
                   1        0        2        0.0          2.0
                 all        0        2        0.0          2.0
`
	if got := trim(tableText(now, later)); !strings.HasPrefix(got, trim(moved)) {
		t.Errorf("got\n%s\nwant\n%s", got, moved)
	}
	must.Contains(t, tableText(now, now), "-", "rates of no time")
}

// On a terminal weir run shows a table that is updated with requests, and ends with the command.
func TestTable(t *testing.T) {
	t.Parallel()
	command := exec.Command(os.Args[0], "run", "--listen", "127.0.0.1:0", "--wasm", "../../dist/weir.wasm")
	command.Env = append(os.Environ(), asCommand+"=1")
	terminal := must.Get(pty.StartWithSize(command, &pty.Winsize{Rows: 30, Cols: 100}))(t)
	defer terminal.Close()
	lines := bufio.NewScanner(terminal)
	until := func(pattern string) []string {
		t.Helper()
		expression := regexp.MustCompile(pattern)
		for lines.Scan() {
			if found := expression.FindStringSubmatch(lines.Text()); found != nil {
				return found
			}
		}
		t.Fatalf("the terminal shows no line like %q", pattern)
		return nil
	}
	address := until(`proxy 0 +(http://\S+)`)[1]
	until(`^ *per-user +0 +0 +0 `)
	for i := range 12 {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil))(t)
		request.Header.Set("x-user", "ann")
		answer := must.Get(envoytest.Client.Do(request))(t)
		must.Get(io.Copy(io.Discard, answer.Body))(t)
		must.Report(t, answer.Body.Close())
		must.Equal(t, answer.StatusCode == http.StatusOK, i < 10, "request %d: %s is a pass", i, answer.Status)
	}
	must.OK(t, pty.Setsize(terminal, &pty.Winsize{Rows: 30, Cols: 40}))
	row := until(`^ *per-user +0 +\d+ +[1-9]\d* `) // it may have been drawn between the last two requests
	for strings.Fields(row[0])[3] == "1" {
		row = until(`^ *per-user +0 +\d+ +[1-9]\d* `)
	}
	must.Same(t, strings.Fields(row[0])[2:], []string{"10", "2"}, "allowed and refused")
	must.AtMost(t, len(row[0]), 40, "on a terminal of 40, characters of a line")
	must.Get(terminal.Write([]byte{3}))(t)
	for lines.Scan() {
		continue
	}
	must.Report(t, command.Wait())
}
