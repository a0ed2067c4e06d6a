package main

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/trust"
)

// What people type arrives, and is shown as they would type it.
func TestOverride(t *testing.T) {
	tokens, err := trust.OneToken("hunter2")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server.Handler(memory.New(memory.Options{}), server.Options{Tokens: tokens, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(s.Close)
	variables := map[string]string{"WEIR_BACKEND": s.URL, "WEIR_TOKEN": "hunter2"}
	weir := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = run(t.Context(), append([]string{"override"}, args...), environment{
			stdin: strings.NewReader(""), stdout: &out, stderr: &errs, getenv: func(name string) string { return variables[name] },
		})
		return code, out.String(), errs.String()
	}
	for _, test := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"list shop", 0, "there has never been an override\n", ""},
		{"set shop per-user ann 1000/1m --until 2126-12-01", 0, "per-user ann 1000/1m until 2126-12-01T00:00:00Z\nno node has told", ""},
		{"set --until=2126-12-01T08:30:00+02:00 shop per-user ann 1000/90s 5/1d/7", 0, "per-user ann 1000/1m30s 5/1d/7 until 2126-12-01T06:30:00Z\n", ""},
		{"set shop all 0/1s", 0, "all 0/1s\n", ""},
		{"set shop two --key 10/1m --key --x 3/500ms", 0, "two 10/1m --x 3/500ms\n", ""},
		{"set shop per-net 10.0.0.0/8 3/1s", 0, "per-net 10.0.0.0/8 3/1s\n", ""},
		{"list shop", 0, "all 0/1s\nper-net 10.0.0.0/8 3/1s\nper-user ann 1000/1m30s 5/1d/7 until 2126-12-01T06:30:00Z\ntwo 10/1m --x 3/500ms\nno node", ""},
		{"list shop per-net", 0, "per-net 10.0.0.0/8 3/1s\nno node", ""},
		{"list shop per-net --json", 0, `"overrides":[{"rule":"per-net","key":["10.0.0.0/8"],"limits":[{"limit":3,"width_ms":1000}]}]}`, ""},
		{"unset shop per-user bob", 1, "", "there is no such override of per-user"},
		{"unset shop per-user ann", 0, "1 removed\n", ""},
		{"unset shop two --all", 0, "1 removed\n", ""},
		{"list shop", 0, "all 0/1s\nper-net 10.0.0.0/8 3/1s\nno node", ""},
		{"unset shop all", 0, "1 removed\n", ""},

		{"", 2, "", "want set, list or unset"},
		{"dance shop", 2, "", `got "dance"`},
		{"set shop per-user ann", 2, "", "LIMIT/WINDOW"},
		{"set shop per-user ann 10/1x", 2, "", "LIMIT/WINDOW"},
		{"set shop per-user ann 10/1m --until soon", 2, "", "want a day such as"},
		{"set shop per-user ann 10/1m --until 2020-01-01", 2, "", "want a time to come"},
		{"set shop per-user ann --key bob 10/1m", 2, "", "want all values as such"},
		{"set shop per-user ann 10/400d", 1, "", "window: want 1 ms to 366 days"},
		{"set * per-user ann 10/1d", 1, "", "namespace: want"},
		{"list shop --all", 2, "", "want NAMESPACE"},
		{"unset shop per-user ann --all", 2, "", "--all: want it without values"},
		{"unset shop", 2, "", "want NAMESPACE RULE"},
		{"list shop --token other", 1, "", "401 Unauthorized: authorization: want the bearer token"},
		{"list shop --backend ftp://x", 2, "", "want a URL such as"},
		{"list shop --backend http://127.0.0.1:1", 1, "", "connection refused"},
	} {
		code, stdout, stderr := weir(strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%s: exit %d, want %d\n%s%s", test.args, code, test.code, stdout, stderr)
		}
	}
	if code, _, stderr := weir("set", "shop", "per-user", "an\xffn", "1/1s"); code != 2 || !strings.Contains(stderr, "UTF-8") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if _, stdout, _ := weir("set", "shop", "per-user", "a b", "", "1/1s"); !strings.Contains(stdout, `per-user "a b" "" 1/1s`) {
		t.Errorf("got %s", stdout)
	}
}
