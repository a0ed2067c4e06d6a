package main

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"weir/internal/wire"
)

// Two regions share limits, while a region and the parent are killed again and again. The parent has in
// the end exactly what was pushed, and what was granted, in both; and no more than the limits.
func TestRegionsKilled(t *testing.T) {
	const limit = 600
	dir := t.TempDir()
	parent := serveFile(t, filepath.Join(dir, "parent.db"))
	defer parent.end()
	asks := []string{"--parent", parent.url(""), "--on-parent-failure", "deny"}
	one := serveStore(t, "file:"+filepath.Join(dir, "one.db"), asks...)
	two := serveStore(t, "memory", asks...)
	answered, stop := senders([]*served{one, two}, 4, limit, true)
	for _, killed := range []*served{one, parent, one, parent} {
		for n := answered.Load(); answered.Load() < n+400; {
			runtime.Gosched()
		}
		killed.kill()
		killed.start()
	}
	for n := answered.Load(); answered.Load() < n+400; {
		runtime.Gosched()
	}
	want, failed := stop()
	one.end()
	two.end()
	got, granted := parent.counted(), int64(0)
	for id, n := range want {
		if got[id] != n {
			t.Errorf("counter %x: the parent has %d hits, want %d", id[:2], got[id], n)
		}
		if id[0] == 1 {
			if granted += n; n > limit {
				t.Errorf("%d hits were granted of a limit of %d", n, limit)
			}
		}
	}
	if failed == 0 || granted == 0 {
		t.Errorf("%d attempts failed, %d hits were granted: want some of both", failed, granted)
	}
	t.Logf("%d pushes answered, %d attempts failed, %d hits granted of %d", answered.Load(), failed, granted, 8*limit)
}

// A region has the parent answer what is of all regions. A parent that has a parent is refused.
func TestRegionRelays(t *testing.T) {
	parent := serveStore(t, "memory", "--token", "s3cret")
	defer parent.end()
	region := serveStore(t, "memory", "--parent", parent.url(""), "--parent-token", "s3cret")
	defer region.end()

	set := `{"overrides":[{"rule":"per-user","key":["ann"],"limits":[{"limit":5,"width_ms":60000}]}]}`
	r, err := http.NewRequestWithContext(t.Context(), "PUT", region.url(wire.OverridesPath+"?namespace=shop"), strings.NewReader(set))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s, %v", response.StatusCode, body, err)
	}
	status, text := ask(t, "GET", parent.url(wire.OverridesPath+"?namespace=shop"), "s3cret", nil)
	if status != http.StatusOK || !strings.Contains(text, "per-user") {
		t.Errorf("the parent's overrides: status %d: %s", status, text)
	}
	// A node of the region hears of it.
	p := &wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1, Node: 7, Known: wire.Known{Asks: true}}
	status, text = ask(t, "POST", region.url(wire.PushPath), "", wire.AppendPush(nil, p))
	answer, err := wire.DecodeAnswer([]byte(text))
	if err != nil || status != http.StatusOK || !strings.Contains(string(answer.Overrides.Part), "per-user") {
		t.Errorf("a node hears %+v, status %d, %v", answer, status, err)
	}

	// The parent has once what keys have used.
	label := wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "per-user", ID: wire.ID{9}})
	used := wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: 3, Sequence: 1, Rows: []wire.UsedRow{{Label: label, Day: uint32(time.Now().Unix() / 86400), Hits: 11}}})
	for range 2 {
		if status, text := ask(t, "POST", region.url(wire.PushPath), "", used); status != http.StatusOK || !wire.AnswersUsed([]byte(text), 1) {
			t.Errorf("usage: status %d: %q", status, text)
		}
	}
	if status, text := ask(t, "GET", region.url("/v1/usage?namespace=shop"), "", nil); status != http.StatusOK || !strings.Contains(text, `"hits":11`) {
		t.Errorf("usage: status %d: %s", status, text)
	}

	if status, text := ask(t, "GET", region.url("/metrics"), "", nil); status != http.StatusOK || !strings.Contains(text, "\nweir_region_parent_away 0\n") {
		t.Errorf("metrics: status %d: %s", status, text)
	}

	var stderr bytes.Buffer
	third := environment{stdout: io.Discard, stderr: &stderr, getenv: func(string) string { return "" }}
	code := run(t.Context(), []string{"serve", "--listen", "127.0.0.1:0", "--parent", region.url("")}, third)
	if code != 2 || !strings.Contains(stderr.String(), "--parent: it has a parent itself, and there are only two levels: want that parent's URL") {
		t.Errorf("code %d: %s", code, &stderr)
	}
}

// Flags of a region are refused with what would be right.
func TestRegionFlags(t *testing.T) {
	for arguments, want := range map[string]string{
		"--parent weir:9180": "--parent: want a URL such as http://weir:9180, without a user or a query",
		"--parent http://127.0.0.1:9 --store redis://127.0.0.1:9":            "--parent: want it with --store memory or file:PATH only",
		"--parent http://127.0.0.1:9 --on-parent-failure allow":              `--on-parent-failure: want share, local or deny, got "allow"`,
		"--on-parent-failure deny":                                           "want them with --parent only",
		"--parent http://127.0.0.1:9 --parent-token a --parent-token-file b": "--parent-token: want either this or --parent-token-file, not both",
	} {
		var stderr bytes.Buffer
		e := environment{stdout: io.Discard, stderr: &stderr, getenv: func(string) string { return "" }}
		code := run(t.Context(), append([]string{"serve", "--listen", "127.0.0.1:0"}, strings.Fields(arguments)...), e)
		if code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: code %d: %s\nwant %q", arguments, code, &stderr, want)
		}
	}
}
