package trust

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"weir/internal/wire"
)

// Scope is a set of namespaces that a client may read and change. The zero value is empty.
type Scope struct {
	all        bool
	namespaces []string
}

// Everything is the scope of all namespaces.
var Everything = Scope{all: true}

// Allows reports whether a namespace is in the scope.
func (s Scope) Allows(namespace string) bool {
	if s.all {
		return true
	}
	for _, n := range s.namespaces {
		if n == namespace {
			return true
		}
	}
	return false
}

// AllowsAll reports whether all namespaces are in the scope.
func (s Scope) AllowsAll() bool { return s.all }

// Tokens is a set of bearer tokens. It is safe for concurrent use.
type Tokens struct {
	fixed *tokens
	file  *files[*tokens]
}

// tokens are hashes, so that comparing them does not reveal a token's length.
type tokens []struct {
	hash      [sha256.Size]byte
	namespace string // empty for all
}

// maxToken is the most bytes of a token. The plugin accepts no longer token either.
const maxToken = 8192

// OneToken returns a single token for all namespaces. The error does not repeat it.
func OneToken(token string) (*Tokens, error) {
	if !isToken(token) {
		return nil, errors.New("want 1 to 8192 visible ASCII characters")
	}
	t := &tokens{}
	t.add(token, "")
	return &Tokens{fixed: t}, nil
}

// ReadTokens reads tokens from a file. Each line has a token for all namespaces, or a namespace, a
// space, and a token for that namespace. A namespace may have several tokens, and a token several
// namespaces. Empty lines, and lines that begin with #, are ignored. As long as tokens are asked
// for, the file is checked again once a second by the clock now. While it is invalid, that is
// logged, and the previous tokens stay in use. Errors do not repeat a token.
func ReadTokens(path string, now func() time.Time, log *slog.Logger) (*Tokens, error) {
	file := &files[*tokens]{paths: []string{path}, now: now, log: log, parse: func(contents [][]byte) (*tokens, error) {
		t, err := parseTokens(string(contents[0]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return t, nil
	}}
	if err := file.open(); err != nil {
		return nil, err
	}
	return &Tokens{file: file}, nil
}

func parseTokens(text string) (*tokens, error) {
	t := &tokens{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		namespace, token := "", fields[len(fields)-1]
		if len(fields) == 2 {
			namespace = fields[0]
		}
		// The error repeats neither field, because an invalid namespace may be a token.
		if len(fields) > 2 || namespace != "" && !wire.IsNamespace(namespace) || !isToken(token) {
			return nil, fmt.Errorf("line %d: want a token of 1 to 8192 visible ASCII characters, alone or after a namespace", number)
		}
		t.add(token, namespace)
	}
	if len(*t) == 0 {
		return nil, errors.New("want at least one token")
	}
	return t, nil
}

func isToken(token string) bool {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return token != "" && len(token) <= maxToken
}

func (t *tokens) add(token, namespace string) {
	*t = append(*t, struct {
		hash      [sha256.Size]byte
		namespace string
	}{sha256.Sum256([]byte(token)), namespace})
}

// Scope returns the scope of a token; ok is false for an unknown token. It takes the same time for
// any token.
func (t *Tokens) Scope(token string) (scope Scope, ok bool) {
	known := t.fixed
	if t.file != nil {
		known = t.file.get()
	}
	hash := sha256.Sum256([]byte(token))
	for i := range *known {
		k := &(*known)[i]
		if subtle.ConstantTimeCompare(hash[:], k.hash[:]) != 1 {
			continue
		}
		ok = true
		if k.namespace == "" {
			scope.all = true
		} else {
			scope.namespaces = append(scope.namespaces, k.namespace)
		}
	}
	return scope, ok
}
