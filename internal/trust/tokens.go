// Package trust decides which clients the counter backend trusts, and with what. A client shows a
// bearer token or a certificate. Both are checked against files, which are read again when they
// change. A token has verbs in namespaces, and so may a certificate: [Client.May] decides by the
// matrix of [Calls].
//
// [Tokens] are a single token, or come from a file. [Certificates] configures a server's
// certificate and the authorities of its clients. Both are safe for concurrent use.
package trust

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"weir/internal/wire"
)

// Client is who sends a request, and what that client may do. The zero value may do nothing that
// needs a verb.
type Client struct {
	// Name is that of the token or, without one, of the certificate. It is empty if the token has
	// none.
	Name string
	// By is how the client is known.
	By     By
	grants []grant
}

// By is how a client is known.
type By string

// How clients are known.
const (
	Nothing     By = ""
	Token       By = "token"
	Certificate By = "certificate"
)

// grant has verbs in a namespace, or in all if that is empty.
type grant struct {
	namespace string
	verbs     Verbs
}

// Trusted returns a client that may do everything. certificate is its certificate, if it has one.
func Trusted(certificate *x509.Certificate) Client {
	c := Client{grants: []grant{{verbs: Admin}}}
	if certificate != nil {
		c.Name, c.By = append(namesOf(certificate), "")[0], Certificate
	}
	return c
}

// namesOf returns the names of a certificate: its URIs, DNS names and addresses of e-mail or, if it
// has none of these, its common name.
func namesOf(c *x509.Certificate) (names []string) {
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	names = append(append(names, c.DNSNames...), c.EmailAddresses...)
	if len(names) == 0 && c.Subject.CommonName != "" {
		names = []string{c.Subject.CommonName}
	}
	return names
}

// Tokens is a set of bearer tokens, and of certificates by their names. It is safe for concurrent
// use.
type Tokens struct {
	fixed *tokens
	file  *files[*tokens]
}

// tokens are the lines of a file. Those with a token have its hash, so that comparing it does not
// reveal a token's length.
type tokens []line

type line struct {
	grant
	hash        [sha256.Size]byte
	certificate string // empty for a token
	name        string
	number      int
}

// maxToken is the most bytes of a token. The plugin accepts no longer token either.
const maxToken = 8192

// OneToken returns a single token for all namespaces, with the verbs of old ones. The error does not
// repeat it.
func OneToken(token string) (*Tokens, error) {
	if !isToken(token) {
		return nil, errors.New("want 1 to 8192 visible ASCII characters")
	}
	return &Tokens{fixed: &tokens{{grant: grant{verbs: AsBefore}, hash: sha256.Sum256([]byte(token))}}}, nil
}

// ReadTokens reads tokens from a file. Each line has a token for all namespaces, or a namespace or
// * for all, a space, and a token for that namespace. Behind these it may have the token's verbs, as
// in verbs=read,change, and its name, as in name=ann. In place of a token, certificate=NAME is for
// clients with a certificate of that name. A namespace may have several tokens, and a token several
// namespaces. Empty lines, and lines that begin with #, are ignored. As long as tokens are asked
// for, the file is checked again once a second by the clock now. While it is invalid, that is
// logged, and the previous tokens stay in use. Errors do not repeat a token.
func ReadTokens(path string, now func() time.Time, log *slog.Logger) (*Tokens, error) {
	file := &files[*tokens]{paths: []string{path}, now: now, log: log, parse: func(contents [][]byte) (*tokens, error) {
		t, err := parseTokens(string(contents[0]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		log.Info("the token file says who may change limits and counters", "who", strings.Join(t.changing(), ", "))
		return t, nil
	}}
	if err := file.open(); err != nil {
		return nil, err
	}
	return &Tokens{file: file}, nil
}

// The options of a line.
const (
	verbsOption       = "verbs="
	nameOption        = "name="
	certificateOption = "certificate="
)

func parseTokens(text string) (*tokens, error) {
	t := &tokens{}
	named := map[[sha256.Size]byte]string{}
	number := 0
	for text := range strings.Lines(text) {
		number++
		fields := strings.Fields(text)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		of, err := parseLine(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if before, known := named[of.hash]; known && before != of.name && of.certificate == "" {
			return nil, fmt.Errorf("line %d: name: want that of the token's other lines", number)
		}
		named[of.hash], of.number = of.name, number
		*t = append(*t, of)
	}
	if len(*t) == 0 {
		return nil, errors.New("want at least one token")
	}
	return t, nil
}

// parseLine parses a line. Its errors repeat neither a token nor what may be one: an invalid
// namespace, or an unknown option.
func parseLine(fields []string) (l line, err error) {
	const want = "want a token of 1 to 8192 visible ASCII characters, alone or after a namespace or *; and verbs= and name= only behind both"
	isOption := func(text string) bool {
		return strings.HasPrefix(text, verbsOption) || strings.HasPrefix(text, nameOption)
	}
	token, options := fields[0], fields[1:]
	if len(fields) > 1 {
		if l.namespace = fields[0]; l.namespace == "*" {
			l.namespace = ""
		} else if !wire.IsNamespace(l.namespace) {
			return l, errors.New(want)
		}
		token, options = fields[1], fields[2:]
	}
	if !isToken(token) || isOption(token) {
		return l, errors.New(want)
	}
	l.verbs = AsBefore
	given := map[string]bool{}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		switch {
		case !isOption(option):
			return l, errors.New(want)
		case given[name]:
			return l, fmt.Errorf("%s: want it once", name)
		case name+"=" == verbsOption:
			l.verbs, err = parseVerbs(value)
		case !isName(value):
			err = errors.New("name: want 1 to 64 of A-Za-z0-9._@-")
		default:
			l.name = value
		}
		if given[name] = true; err != nil {
			return l, err
		}
	}
	var isCertificate bool
	if l.certificate, isCertificate = strings.CutPrefix(token, certificateOption); !isCertificate {
		l.certificate, l.hash = "", sha256.Sum256([]byte(token))
	} else if l.certificate == "" || l.name != "" {
		return l, errors.New("certificate: want a certificate's name, and no other")
	}
	return l, nil
}

func isToken(token string) bool {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return token != "" && len(token) <= maxToken
}

// isName reports whether a text can be a token's name.
func isName(text string) bool {
	return wire.IsNamespace(strings.ReplaceAll(text, "@", "-")) && len(text) <= 64
}

// MayChange says who may change limits and counters.
func (t *Tokens) MayChange() string {
	switch {
	case t == nil:
		return "anyone"
	case t.fixed != nil:
		return "the token in all namespaces"
	}
	return strings.Join(t.lines().changing(), ", ")
}

// mostTold bounds how many clients the log names.
const mostTold = 20

// changing returns who may change something, and where.
func (t *tokens) changing() (who []string) {
	for i := range *t {
		l := &(*t)[i]
		if l.verbs&change == 0 {
			continue
		}
		name, where := l.name, l.namespace
		switch {
		case l.certificate != "":
			name = certificateOption + l.certificate
		case name == "":
			name = fmt.Sprintf("the token of line %d", l.number)
		}
		where = cmp.Or(where, "all namespaces")
		who = append(who, name+" in "+where)
	}
	if more := len(who) - mostTold; more > 0 {
		who = append(who[:mostTold], fmt.Sprintf("%d more", more))
	}
	return who
}

// Certificates reports whether some clients are known by their certificates.
func (t *Tokens) Certificates() bool {
	return t != nil && slices.ContainsFunc(*t.lines(), func(l line) bool { return l.certificate != "" })
}

func (t *Tokens) lines() *tokens {
	if t.file != nil {
		return t.file.get()
	}
	return t.fixed
}

// Client returns who has a token, or a certificate that is nil if there is none. What both may do
// adds up. ok is false if neither is known. It takes the same time for any token.
func (t *Tokens) Client(token string, certificate *x509.Certificate) (c Client, ok bool) {
	var names []string
	if certificate != nil {
		names = namesOf(certificate)
	}
	hash := sha256.Sum256([]byte(token))
	known := t.lines()
	for i := range *known {
		l := &(*known)[i]
		switch {
		case l.certificate == "" && subtle.ConstantTimeCompare(hash[:], l.hash[:]) == 1:
			c.Name, c.By = l.name, Token
		case l.certificate != "" && slices.Contains(names, l.certificate):
			if c.By == Nothing {
				c.Name, c.By = l.certificate, Certificate
			}
		default:
			continue
		}
		c.grants = append(c.grants, l.grant)
	}
	return c, c.By != Nothing
}
