package trust

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

var update = flag.Bool("update", false, "write the table of calls into docs/security.md")

// tokensOf reads a file with these lines.
func tokensOf(t *testing.T, lines string) (*Tokens, error) {
	t.Helper()
	return ReadTokens(must.File(t, filepath.Join(t.TempDir(), "tokens"), lines), time.Now, slog.New(slog.DiscardHandler))
}

// allowed are the verbs whose tokens may call, as people would say it: what the table derives is
// compared with this.
var allowed = map[Verbs]string{0: "push read change admin none", Push: "push admin none", Read: "read change admin none", change: "change admin none"}

// Each call is allowed with its verb, in its namespace, and with what includes the verb, and with
// nothing else. A token without verbs may do what it could before there were verbs.
func TestMatrix(t *testing.T) {
	tokens := must.Get(tokensOf(t, "shop s-push verbs=push\nshop s-read verbs=read\nshop s-change verbs=change\nshop s-admin verbs=admin\nshop s-none\n"+
		"* a-push verbs=push\n* a-read verbs=read\n* a-change verbs=change\n* a-admin verbs=admin\na-none\n"))(t)
	must.Equal(t, len(Calls()), int(calls), "calls")
	must.AtLeast(t, int(calls), 20, "calls")
	for _, call := range Calls() {
		need := call.Needs()
		if need.Pattern == "" || need.Does == "" {
			t.Errorf("call %d has no need", call)
		}
		for _, verb := range []string{"push", "read", "change", "admin", "none"} {
			has := strings.Contains(allowed[need.Verbs], verb)
			for _, all := range []bool{false, true} {
				token := "s-" + verb
				if all {
					token = "a-" + verb
				}
				client, ok := tokens.Client(token, nil)
				must.EqualOrEnd(t, ok, true, "%s is taken", token)
				for _, namespace := range []string{"shop", "shop2", "sho", "SHOP", "shop.", "", "*"} {
					there := all || need.Verbs == 0 || namespace == "shop" && need.Where == Asked
					want := Allowed
					switch {
					case has && there:
					case !there:
						want = Foreign
					default:
						want = client.May(call, namespace)
						if !strings.HasPrefix(string(want), "authorization: want the verb ") || !IsOfNamespace(string(want)) {
							t.Errorf("%s, %s in %q: %q", need.Pattern, token, namespace, want)
						}
						continue
					}
					must.Equal(t, client.May(call, namespace), want, "%s, %s in %q", need.Pattern, token, namespace)
				}
			}
		}
		nobody, trusted := Client{}, Trusted(nil)
		must.Equal(t, nobody.May(call, "shop") == Allowed, need.Verbs == 0, "%s by nobody", need.Pattern)
		must.Equal(t, trusted.May(call, "shop"), Allowed, "%s where no token is asked for", need.Pattern)
	}
}

// What a token may do in its namespaces adds up, and does not spread to others.
func TestVerbsOfSeveralLines(t *testing.T) {
	tokens := must.Get(tokensOf(t, "shop two verbs=read name=two\napi two verbs=push,change name=two\n* two verbs=push name=two\n"))(t)
	client, _ := tokens.Client("two", nil)
	must.Equal(t, client.Name, "two", "name")
	must.Equal(t, client.By, Token, "known by")
	for want, is := range map[string]bool{
		"push, read": client.May(PushHits, "shop") == Allowed && client.May(GetTop, "shop") == Allowed && client.May(SetOverrides, "shop") != Allowed,
		"all":        client.May(PushHits, "api") == Allowed && client.May(GetTop, "api") == Allowed && client.May(SetOverrides, "api") == Allowed,
		"push":       client.May(PushHits, "web") == Allowed && client.May(GetTop, "web") != Allowed,
		"no names":   client.May(GetNames, "") != Allowed,
	} {
		must.Equal(t, is, true, "want %s", want)
	}
}

// A certificate counts by its names: those of its extension or, if there are none, its common name.
func TestCertificatesOfAFile(t *testing.T) {
	tokens := must.Get(tokensOf(t, "shop certificate=gateway verbs=push\n* certificate=spiffe://prod/ns/weir verbs=read\nshop both verbs=change name=ann\ncertificate=old\n"))(t)
	if none, err := tokensOf(t, "token\n"); err != nil || none.Certificates() || !tokens.Certificates() || (*Tokens)(nil).Certificates() {
		t.Error("certificates are not told from tokens")
	}
	id, _ := url.Parse("spiffe://prod/ns/weir")
	named := func(dns string, uris ...*url.URL) *x509.Certificate {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: "gateway"}, URIs: uris}
		if dns != "" {
			c.DNSNames = []string{dns}
		}
		return c
	}
	for _, test := range []struct {
		token       string
		certificate *x509.Certificate
		name        string
		by          By
		does        string
	}{
		{"", nil, "", Nothing, ""},
		{"", named(""), "gateway", Certificate, "push"},
		{"", named("gateway"), "gateway", Certificate, "push"},
		{"", named("other"), "", Nothing, ""}, // a common name is free text beside other names
		{"", named("gateway.evil"), "", Nothing, ""},
		{"", named("other", id), "spiffe://prod/ns/weir", Certificate, "read"},
		{"", named("gateway", id), "gateway", Certificate, "push read"},
		{"both", named("gateway"), "ann", Token, "push read change"},
		{"both", named("other"), "ann", Token, "read change"},
		{"certificate=old", nil, "", Nothing, ""},
		{"", named("old"), "old", Certificate, "push read change"},
	} {
		client, ok := tokens.Client(test.token, test.certificate)
		does := ""
		for _, verb := range []Call{PushHits, GetTop, SetOverrides} {
			if client.May(verb, "shop") == Allowed {
				does += verbNames[map[Call]int{PushHits: 0, GetTop: 1, SetOverrides: 2}[verb]].name + " "
			}
		}
		if client.Name != test.name || client.By != test.by || ok != (test.by != Nothing) || strings.TrimSpace(does) != test.does {
			t.Errorf("%q, %+v: %q by %q may %q", test.token, test.certificate, client.Name, client.By, does)
		}
	}
	if c := Trusted(named("other", id)); c.Name != "spiffe://prod/ns/weir" || c.By != Certificate {
		t.Errorf("where all certificates are trusted: %+v", c)
	}
}

// A line that makes no sense is refused with its number, and without what may be a token.
func TestLinesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"ok\nshop t0p verbs=reed":                      `line 2: verbs: want push, read, change or admin, with commas between, got "reed"`,
		"shop t0p verbs=":                              `line 1: verbs: want push, read, change or admin, with commas between, got ""`,
		"shop t0p verbs=read,":                         "line 1: verbs: ",
		"shop t0p verbs=READ":                          "line 1: verbs: ",
		"shop t0p verbs=read,change,push,x":            "line 1: verbs: ",
		"shop t0p verbs=read verbs=change":             "line 1: verbs: want it once",
		"shop t0p name=a name=b":                       "line 1: name: want it once",
		"t0p verbs=read":                               "line 1: want a token",
		"t0p name=ann":                                 "line 1: want a token",
		"verbs=read t0p":                               "line 1: want a token",
		"name=ann":                                     "line 1: want a token",
		"shop t0p read":                                "line 1: want a token",
		"shop read t0p":                                "line 1: want a token",
		"shop t0p verb=read":                           "line 1: want a token",
		"shop t0p verbs=read t1p":                      "line 1: want a token",
		"** t0p":                                       "line 1: want a token",
		"shop t0p name=":                               "line 1: name: want 1 to 64",
		"shop t0p name=a\x1bb":                         "line 1: name: want 1 to 64",
		"shop t0p name=" + strings.Repeat("n", 65):     "line 1: name: want 1 to 64",
		"shop t0p name=ann\napi t1p\napi t0p name=bob": "line 3: name: want that of the token's other lines",
		"shop t0p\napi t0p name=bob":                   "line 2: name: want that of the token's other lines",
		"shop certificate= verbs=read":                 "line 1: certificate: want a certificate's name",
		"shop certificate=gateway name=ann":            "line 1: certificate: want a certificate's name, and no other",
		"# verbs=none\n\nshop t0p verbs=read\nshop t1p verbs=none# no": "line 4: verbs: ",
	} {
		_, err := tokensOf(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "t0p") || strings.Contains(err.Error(), "t1p") {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// The log says who may change something, when the file is read, without a token.
func TestWhoMayChangeIsTold(t *testing.T) {
	var log strings.Builder
	path := must.File(t, filepath.Join(t.TempDir(), "tokens"), "# old\nt0p\nshop t1p verbs=push,read name=graph\nshop t2p verbs=change name=ann@example\n* certificate=ops verbs=admin\n")
	must.Get(ReadTokens(path, time.Now, slog.New(slog.NewTextHandler(&log, nil))))(t)
	if want := `who="the token of line 2 in all namespaces, ann@example in shop, certificate=ops in all namespaces"`; !strings.Contains(log.String(), want) || strings.Contains(log.String(), "t0p") {
		t.Errorf("the log has %s, want %s", log.String(), want)
	}
	log.Reset()
	must.File(t, path, strings.Repeat("t0p\n", 1000))
	if _, err := ReadTokens(path, time.Now, slog.New(slog.NewTextHandler(&log, nil))); err != nil || !strings.Contains(log.String(), ", 980 more") || log.Len() > 2000 {
		t.Errorf("the log has %.3000s, %v", log.String(), err)
	}
}

// Whatever a file has, it is refused, or each of its lines has a token or a certificate, and a verb.
func FuzzTokens(f *testing.F) {
	for _, text := range []string{"t0p", "shop t0p", "* t0p verbs=read,push name=a@b", "shop certificate=x verbs=change", "#\n\nshop t0p verbs=", "a b c d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseTokens(text)
		if err != nil {
			return
		}
		for _, l := range *parsed {
			if l.verbs == 0 || l.verbs&^Admin != 0 || (l.certificate == "") == (l.hash == [32]byte{}) || l.namespace == "*" || !strings.HasPrefix(l.name+"x", strings.TrimSpace(l.name)) {
				t.Errorf("%q: %+v", text, l)
			}
		}
		if client, ok := (&Tokens{fixed: parsed}).Client("", nil); ok {
			t.Errorf("%q: no token is %+v", text, client)
		}
	})
}

const securityPage = "../../docs/security.md"

// The page on security has the matrix, as it is.
func TestCallsPage(t *testing.T) {
	const begins, ends = "<!-- calls: go test ./internal/trust -run TestCallsPage -update -->\n\n", "\n<!-- end of calls -->"
	var table strings.Builder
	table.WriteString("| call | needs | push | read | change | admin | |\n|---|---|:-:|:-:|:-:|:-:|---|\n")
	for _, call := range Calls() {
		need, name := call.Needs(), "nothing"
		if need.Verbs != 0 {
			name = "`" + need.Verbs.name() + "`"
			if need.Where == All {
				name += " for all namespaces"
			}
		}
		fmt.Fprintf(&table, "| `%s` | %s |", need.Pattern, name)
		for _, verb := range verbNames {
			c := Client{grants: []grant{{verbs: verb.verbs}}}
			fmt.Fprintf(&table, " %s |", map[bool]string{true: "yes", false: "–"}[c.May(call, "shop") == Allowed])
		}
		fmt.Fprintf(&table, " %s |\n", need.Does)
	}
	page := must.Get(os.ReadFile(securityPage))(t)
	before, rest, found := strings.Cut(string(page), begins)
	_, after, ended := strings.Cut(rest, ends)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", securityPage)
	}
	want := before + begins + table.String() + ends + after
	if *update {
		must.OK(t, os.WriteFile(securityPage, []byte(want), 0o644))
	} else if want != string(page) {
		t.Error("docs/security.md has another table: go test ./internal/trust -run TestCallsPage -update writes it")
	}
}
