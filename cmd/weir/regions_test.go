package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/region"
	"weir/internal/trust"
	"weir/internal/trust/trusttest"
	"weir/internal/wire"
	"weir/ratelimit"
	"weir/window"
)

// Two regions share limits, while a region and the parent are killed again and again. In the end
// the parent has exactly the pushed and the granted hits of both, and no more than the limits.
func TestRegionsKilled(t *testing.T) {
	const limit = 600
	dir := t.TempDir()
	parent := serveStore(t, "file:"+filepath.Join(dir, "parent.db"))
	asks := []string{"--parent", parent.url(""), "--on-parent-failure", "deny"}
	one := serveStore(t, "file:"+filepath.Join(dir, "one.db"), asks...)
	two := serveStore(t, "memory", asks...)
	answered, stop := senders([]*served{one, two}, 4, limit, true)
	for _, killed := range []*served{one, parent, one, parent} {
		for n := answered.Load(); answered.Load() < n+400; {
			runtime.Gosched()
		}
		killed.Kill(t)
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
		must.Equal(t, got[id], n, "counter %x: hits at the parent", id[:2])
		if id[0] == 1 {
			granted += n
			must.AtMost(t, n, limit, "hits granted")
		}
	}
	must.AtLeast(t, failed, 1, "attempts that failed")
	must.AtLeast(t, granted, 1, "hits granted")
	t.Logf("%d pushes answered, %d attempts failed, %d hits granted of %d", answered.Load(), failed, granted, 8*limit)
}

// A region refers to the parent for the data of all regions. A parent that has a parent is refused.
func TestRegionRelays(t *testing.T) {
	parent := serveStore(t, "memory", "--token", "s3cret")
	region := serveStore(t, "memory", "--parent", parent.url(""), "--parent-token", "s3cret")

	set := `{"overrides":[{"rule":"per-user","key":["ann"],"limits":[{"limit":5,"width_ms":60000}]}]}`
	status, text := ask(t, "PUT", region.url(wire.OverridesPath+"?namespace=shop"), "", []byte(set), "Content-Type", "application/json")
	must.EqualOrEnd(t, status, http.StatusOK, "%s: status", text)
	wantStatus(t, "GET", parent.url(wire.OverridesPath+"?namespace=shop"), "s3cret", nil, http.StatusOK, "per-user")
	// A node of the region gets the override.
	p := &wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1, Node: 7, Known: wire.Known{Asks: true}}
	status, text = ask(t, "POST", region.url(wire.PushPath), "", wire.AppendPush(nil, p))
	answer, err := wire.DecodeAnswer([]byte(text))
	if err != nil || status != http.StatusOK || !strings.Contains(string(answer.Overrides.Part), "per-user") {
		t.Errorf("a node hears %+v, status %d, %v", answer, status, err)
	}

	// The parent has each used hit once.
	label := wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "per-user", ID: wire.ID{9}})
	used := wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: 3, Sequence: 1, Rows: []wire.UsedRow{{Label: label, Day: uint32(time.Now().Unix() / 86400), Hits: 11}}})
	for range 2 {
		if status, text := ask(t, "POST", region.url(wire.PushPath), "", used); status != http.StatusOK || !wire.AnswersUsed([]byte(text), 1) {
			t.Errorf("usage: status %d: %q", status, text)
		}
	}
	wantStatus(t, "GET", region.url("/v1/usage?namespace=shop"), "", nil, http.StatusOK, `"hits":11`)

	wantStatus(t, "GET", region.url("/metrics"), "", nil, http.StatusOK, "\nweir_region_parent_away 0\n")

	executeAll(t, nil, []lineTest{
		{"serve --listen 127.0.0.1:0 --parent " + region.url(""), 2, "", "--parent: it has a parent itself, and there are only two levels: want that parent's URL"},
	})
}

// Wrong flags of a region are refused with a hint.
func TestRegionFlags(t *testing.T) {
	for arguments, want := range map[string]string{
		"--parent weir:9180": "--parent: want a URL such as http://weir:9180, without a user or a query",
		"--parent http://127.0.0.1:9 --store redis://127.0.0.1:9":            "--parent: want it with --store memory or file:PATH only",
		"--parent http://127.0.0.1:9 --on-parent-failure allow":              `--on-parent-failure: want share, local or deny, got "allow"`,
		"--on-parent-failure deny":                                           "want them with --parent only",
		"--parent-ca ca.pem":                                                 "want them with --parent only",
		"--parent http://127.0.0.1:9 --parent-ca ca.pem":                     "--parent-ca: want it with a --parent of https only",
		"--parent https://127.0.0.1:9 --parent-ca /nowhere/ca.pem":           "--parent-ca: open /nowhere/ca.pem: no such file",
		"--parent https://127.0.0.1:9 --parent-ca regions_test.go":           "--parent-ca: regions_test.go: want a certificate in PEM",
		"--parent http://127.0.0.1:9 --parent-token a --parent-token-file b": "--parent-token: want either this or --parent-token-file, not both",
	} {
		executeAll(t, nil, []lineTest{{"serve --listen 127.0.0.1:0 " + arguments, 2, "", want}})
	}
}

// If the region's token does not include a namespace, the region still uses the parent for others.
func TestRegionOfSomeNamespaces(t *testing.T) {
	tokens := must.File(t, filepath.Join(t.TempDir(), "tokens"), "shop s3cret\n")
	parent := serveStore(t, "memory", "--token-file", tokens)
	region := serveStore(t, "memory", "--parent", parent.url(""), "--parent-token", "s3cret")
	defer region.Kill(t) // it can't push its hits of the namespace private
	room := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.FixedWindow), WidthMillis: 3600e3}, Limit: 1000, Cost: 1}
	for i, namespace := range []string{"shop", "private", "shop"} {
		room.ID[0] = byte(i)
		p := &wire.Push{Namespace: namespace, Sender: 1, Sequence: uint64(i + 1), Floor: 1, Node: 7, Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{room}}}}
		headers := []string{"Content-Type", wire.ContentType}
		if namespace == "private" {
			headers = append(headers, "X-Envoy-Expected-Rq-Timeout-Ms", "300")
		}
		status, body := ask(t, "POST", region.url(wire.PushPath), "", wire.AppendPush(nil, p), headers...)
		answer, err := wire.DecodeAnswer([]byte(body))
		if namespace == "private" && status == http.StatusServiceUnavailable {
			err = nil // the machine was too busy for an answer in time
		}
		if err != nil || namespace == "shop" && answer.Grants[0].Units != 1 {
			t.Errorf("%s: status %d, %+v, %v", namespace, status, answer, err)
		}
		wantStatus(t, "GET", region.url("/metrics"), "", nil, http.StatusOK, "\nweir_region_parent_away 0\n")
	}
}

// An answer is a refusal if the parent would accept other pushes. After other errors the parent is
// away.
func TestRefusals(t *testing.T) {
	file := must.File(t, filepath.Join(t.TempDir(), "tokens"), "shop reader verbs=read\n")
	tokens := must.Get(trust.ReadTokens(file, time.Now, slog.New(slog.DiscardHandler)))(t)
	reader, _ := tokens.Client("reader", nil)
	for _, test := range []struct {
		status  int
		of      string
		detail  string
		refusal bool
	}{
		{503, "application/problem+json", store.ErrFull.Error() + ": 16384 are kept", true},
		{503, "application/problem+json", "the store failed", false},
		{503, "text/plain", store.ErrFull.Error(), false},
		{403, "application/problem+json", string(trust.Foreign), true},
		{403, "application/problem+json", string(reader.May(trust.PushHits, "shop")), true},
		{403, "application/problem+json", "want a client certificate", false},
		{401, "application/problem+json", "authorization: want the bearer token", false},
		{400, "application/problem+json", "body: it ends too early", true},
		{413, "application/problem+json", "body: want at most 1 byte", true},
		{415, "application/problem+json", "body: a version of its own", true},
		{415, "application/problem+json", "content-type: want another", false},
		{502, "text/html", "body: bad gateway", false},
	} {
		parent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.of)
			w.WriteHeader(test.status)
			must.Report(t, json.NewEncoder(w).Encode(map[string]string{"detail": test.detail}))
		}))
		client := must.Get(ratelimit.Dial(parent.URL, ratelimit.DialOptions{HTTPClient: &http.Client{Transport: toParent{http.DefaultTransport}}}))(t)
		_, err := client.Push(t.Context(), nil)
		must.Equal(t, errors.Is(err, region.ErrRefused), test.refusal, "%d %q: %v is a refusal", test.status, test.detail, err)
		parent.Close()
	}
}

// The parent's certificate is verified with the authority from the flag or the environment.
func TestRegionOfTLS(t *testing.T) {
	authority, stranger := trusttest.New(t), trusttest.New(t)
	certificate, key := authority.Issue(t, "parent")
	parent := serveStore(t, "memory", "--tls-cert", certificate, "--tls-key", key)
	url := "https://" + parent.address
	room := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.FixedWindow), WidthMillis: 3600e3}, Limit: 1000, Cost: 1}
	message := wire.AppendPush(nil, &wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1, Node: 7, Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{room}}}})

	right := serveStore(t, "memory", "--parent", url, "--parent-ca", authority.File)
	status, text := ask(t, "POST", right.url(wire.PushPath), "", message)
	if answer, err := wire.DecodeAnswer([]byte(text)); err != nil || status != http.StatusOK || answer.Grants[0].Units != 1 {
		t.Errorf("right authority: status %d, %+v, %v", status, answer, err)
	}
	wantStatus(t, "GET", right.url(wire.OverridesPath+"?namespace=shop"), "", nil, http.StatusOK)
	right.end()

	for name, more := range map[string][]string{"wrong authority": {"--parent-ca", stranger.File}, "the system's authorities": nil} {
		wrong := serveStore(t, "memory", append([]string{"--parent", url, "--on-parent-failure", "deny"}, more...)...)
		status, text = ask(t, "POST", wrong.url(wire.PushPath), "", message)
		if answer, err := wire.DecodeAnswer([]byte(text)); err != nil || status != http.StatusOK || answer.Grants[0].Units != 0 {
			t.Errorf("%s: status %d, %+v, %v", name, status, answer, err)
		}
		wantStatus(t, "GET", wrong.url("/metrics"), "", nil, http.StatusOK, "\nweir_region_parent_away 1\n")
		wantStatus(t, "GET", wrong.url(wire.OverridesPath+"?namespace=shop"), "", nil, http.StatusBadGateway)
		wrong.Kill(t)
	}

	f := parentFlags{text: url}
	must.OK(t, f.read(environment{getenv: func(name string) string { return map[string]string{"WEIR_PARENT_CA": authority.File}[name] }}))
	askWith(t, &http.Client{Transport: f.transport}, "GET", url+"/livez", "", nil) // by the authority of the environment
	f.transport.(*http.Transport).CloseIdleConnections()
}
