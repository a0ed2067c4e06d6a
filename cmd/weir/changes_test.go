package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// What people change through two backends of one Redis, or through one with a file, is told
// by weir changes, in a table that controls no terminal, and as JSON.
func TestChangesOfProcesses(t *testing.T) {
	tokens := must.File(t, filepath.Join(t.TempDir(), "tokens"), "shop t0p verbs=change name=ann\nshop t1p verbs=push,change name=bob@example\nshop t2p verbs=read\nshop t3p verbs=push\n")
	file := "file:" + filepath.Join(t.TempDir(), "weir.db")
	for name, store := range map[string]string{"redis": redistest.Start(t).URL(), "file": file} {
		t.Run(name, func(t *testing.T) {
			serve := func() (url string) {
				address, _ := startServe(t, []string{"--token-file", tokens}, []string{"WEIR_STORE=" + store})
				return "http://" + address
			}
			one := serve()
			two := one
			if name == "redis" {
				two = serve()
			}
			run := func(backend, token string, want int, args ...string) (stdout, stderr string) {
				t.Helper()
				code, stdout, stderr := execute(t.Context(), map[string]string{"WEIR_BACKEND": backend, "WEIR_TOKEN": token}, "", args...)
				must.Equal(t, code, want, "weir %q: exit code: %s", args, stderr)
				return stdout, stderr
			}
			run(one, "t0p", 0, "override", "set", "shop", "per-user", "ann", "1000/1m", "--force", "--reason", "a\nb \x1b[2J\u202e")
			run(two, "t1p", 0, "override", "set", "shop", "per-user", "ann", "2000/1m", "--force")
			run(two, "t1p", 0, "override", "set", "shop", "per-user", "ann", "2000/1m", "--force", "--reason", "again")
			run(one, "t1p", 0, "price", "set", "shop", "models", "gpt 5", "input=1.25", "--reason", "new")
			run(two, "t0p", 0, "counter", "reset", "shop", "per-user", "ann", "--allow-none")
			run(one, "t0p", 0, "override", "unset", "shop", "per-user", "ann", "--reason", "done")
			for _, refused := range [][]string{
				{"t2p", "override", "set", "shop", "per-user", "ann", "1/1m", "--force"}, {"t3p", "override", "unset", "shop", "per-user", "ann"},
				{"t2p", "price", "unset", "shop", "models"}, {"t2p", "counter", "reset", "shop", "per-user", "ann", "--allow-none"}, {"t3p", "changes", "shop"},
			} {
				if _, stderr := run(one, refused[0], 1, refused[1:]...); !strings.Contains(stderr, "want the verb ") || strings.Contains(stderr, refused[0]) {
					t.Errorf("weir %q: %s", refused, stderr)
				}
			}
			_, stderr := run(one, "t0p", 2, "override", "unset", "shop", "per-user", "ann", "--reason", strings.Repeat("x", 257))
			must.Contains(t, stderr, "want at most 256 bytes, got 257", "a long reason")
			table, _ := run(two, "t2p", 0, "changes", "shop", "--since", "1h")
			lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
			const at, hash = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  `, ` [0-9a-f]{32} +`
			for i, want := range []string{
				`^WHEN +WHO +FROM +WHAT +OF +BEFORE +AFTER +REASON$`,
				at + `ann +127\.0\.0\.1  set override +per-user` + hash + `- +1000/1m +"a\\nb \\x1b\[2J\\u202e"$`,
				at + `bob@example  127\.0\.0\.1  set override +per-user` + hash + `1000/1m +2000/1m *$`,
				at + `bob@example  127\.0\.0\.1  set price +models "gpt 5" +- +input=1\.25 +new$`,
				at + `ann +127\.0\.0\.1  reset counter +per-user` + hash + `- +- *$`,
				at + `ann +127\.0\.0\.1  remove override +per-user` + hash + `2000/1m +- +done$`,
			} {
				if len(lines) != 6 || !regexp.MustCompile(want).MatchString(lines[min(i, len(lines)-1)]) {
					t.Errorf("line %d is not %s:\n%s", i, want, table)
				}
			}
			asJSON, _ := run(one, "t2p", 0, "changes", "shop", "--json")
			if strings.Count(asJSON, `"made":true`) != 5 || strings.Contains(asJSON, "ann\"}]") || !strings.Contains(asJSON, `"reason":"a\nb \u001b[2J`) {
				t.Error(asJSON)
			}
			none, _ := run(one, "t0p", 0, "changes", "shop", "--since", "2999-01-01")
			must.Equal(t, none, "nobody has changed anything\n", "")
			wantStatus(t, "POST", one+wire.PushPath, "t2p", wire.AppendPush(nil, &wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1}), 403)
		})
	}
}
