package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/backend"
	"weir/internal/server"
	"weir/internal/wire"
)

// backendFlags are the flags that name weir serve.
type backendFlags struct {
	url   string
	token secret
	given string
	// reason is why something is changed, and wait how long to wait until all nodes know of it.
	reason string
	wait   time.Duration
}

func (f *backendFlags) define(flags *flag.FlagSet) {
	flags.StringVar(&f.url, "backend", "", "`URL` of weir serve, WEIR_BACKEND if empty, else http://127.0.0.1:9180")
	f.token.define(flags, "token", "bearer `token` that weir serve asks for; better given as WEIR_TOKEN or in a file", "`file` with the token")
}

// changing defines the flags of commands that change something.
func (f *backendFlags) changing(flags *flag.FlagSet) {
	flags.DurationVar(&f.wait, "wait", 0, "how long to wait until all nodes know of the change; if some do not by then, the command fails")
	flags.Func("reason", fmt.Sprintf("`why` the change is made, for weir changes and the log of weir serve: up to %d bytes", backend.MaxReason), func(text string) error {
		if f.reason = text; len(text) > backend.MaxReason {
			return fmt.Errorf("want at most %d bytes, got %d", backend.MaxReason, len(text))
		}
		return nil
	})
}

// parse parses a command line with at least so many operands, which want describes, and at most so many, and
// finds the backend.
func (f *backendFlags) parse(flags *flag.FlagSet, args []string, env environment, usage string, least, most int, want string) (operands []string, err error) {
	f.define(flags)
	switch operands, err = parseMixed(flags, args, env, usage); {
	case err != nil:
	case len(operands) < least || len(operands) > most:
		err = fmt.Errorf("%w: want %s", errUsage, want)
	default:
		err = f.resolve(env)
	}
	return operands, err
}

func (f *backendFlags) resolve(env environment) (err error) {
	f.url = cmp.Or(f.url, env.getenv("WEIR_BACKEND"), "http://127.0.0.1:9180")
	if u, err := url.Parse(f.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("%w: --backend: want a URL such as http://weir:9180, without a user or a query", errUsage)
	}
	f.given, err = f.token.read(env)
	return err
}

// callTimeout bounds a call of the backend, which takes up to 20 seconds to change a full list.
const callTimeout = 30 * time.Second

// askAgain is after how long a change whose answer was lost is asked for once more.
const askAgain = time.Second

// refusal is an answer that would be the same if the request were repeated.
type refusal struct{ error }

// trouble is an answer of a backend that may answer other requests, such as those whose counters another server of
// its store has.
type trouble struct{ error }

// backendClient follows no redirection that would make a change a GET, whose answer looks as if the change were made.
var backendClient = http.Client{CheckRedirect: func(r *http.Request, via []*http.Request) error {
	if r.Method != via[0].Method || len(via) == 10 {
		return http.ErrUseLastResponse
	}
	return nil
}}

// call makes a request of the backend, with a body of JSON unless it is nil, and reads the answer into result.
func (f *backendFlags) call(ctx context.Context, method, path string, query url.Values, body, result any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if method != http.MethodGet && f.reason != "" {
		query = maps.Clone(query)
		query.Set("reason", f.reason)
	}
	sent := false // whether the backend may have the request
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	target := strings.TrimSuffix(f.url, "/") + path + "?" + query.Encode()
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if f.given != "" {
		request.Header.Set("Authorization", "Bearer "+f.given)
	}
	if method == http.MethodPost {
		request.Header.Set("Idempotency-Key", rand.Text())
	}
	response, err := backendClient.Do(request)
	lost := func() bool { // by the connection, or by a gateway on the way
		if err != nil {
			return sent
		}
		return response.StatusCode == http.StatusBadGateway || response.StatusCode == http.StatusGatewayTimeout
	}
	if method == http.MethodPost && lost() {
		select {
		case <-time.After(askAgain): // the backend may still be at it
		case <-ctx.Done():
		}
		if err == nil {
			_ = response.Body.Close()
		}
		request.Body = io.NopCloser(bytes.NewReader(text)) // the backend knows by the key whether it has done it
		response, err = backendClient.Do(request)
	}
	unsure := method != http.MethodGet && lost()
	switch {
	case err != nil && unsure:
		return fmt.Errorf("%w: it may have been done: look before you try again", err)
	case err != nil:
		return fmt.Errorf("%w: --backend or WEIR_BACKEND says where weir serve is", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	limited := &io.LimitedReader{R: response.Body, N: longestAnswer}
	answer := json.NewDecoder(limited)
	if response.StatusCode != http.StatusOK {
		var problem struct{ Detail string }
		if answer.Decode(&problem) != nil {
			problem.Detail = "no reason given; is this weir serve?"
			unsure = unsure || method != http.MethodGet && response.StatusCode >= 500
		}
		if unsure {
			problem.Detail += ": it may have been done: look before you try again"
		}
		if to, err := response.Location(); err == nil {
			to.RawQuery = ""
			problem.Detail = fmt.Sprintf("it leads to %s: name that address with --backend or WEIR_BACKEND", strings.TrimSuffix(to.String(), path))
		}
		err := fmt.Errorf("the backend answered %s: %.300s", response.Status, problem.Detail)
		if response.StatusCode < 500 {
			return refusal{err}
		}
		return trouble{err}
	}
	if err = answer.Decode(result); err != nil && limited.N == 0 {
		return fmt.Errorf("the answer is longer than %d MiB: ask for one rule, or for a shorter time", longestAnswer>>20)
	}
	return err
}

// longestAnswer bounds a backend's answer, in bytes. 50,000 rows of usage with long names, or 10,000 long records of changes,
// take about a half.
const longestAnswer = 128 << 20

// get asks the backend for what is at a path.
func get[T any](ctx context.Context, f *backendFlags, path string, query url.Values) (found T, err error) {
	err = f.call(ctx, http.MethodGet, path, query, nil, &found)
	return found, err
}

// queryOf is the query for what operands of a command say of a namespace: the first by the first of the names, and so on.
func queryOf(namespace string, operands []string, names ...string) url.Values {
	query := url.Values{"namespace": {namespace}}
	for i, operand := range operands {
		query.Set(names[i], operand)
	}
	return query
}

// known returns the rules that nodes have told of a namespace.
func (f *backendFlags) known(ctx context.Context, namespace string) (rules []server.KnownRule, err error) {
	found, err := get[server.Namespaces](ctx, f, server.NamespacesPath, url.Values{"namespace": {namespace}})
	for _, n := range found.Namespaces {
		rules = append(rules, n.Known...)
	}
	return rules, err
}

// remove removes overrides or prices, and prints how many. It returns the error none if there are none.
func (f *backendFlags) remove(ctx context.Context, out io.Writer, path string, query url.Values, none error) error {
	var changed server.Changed
	if err := f.call(ctx, http.MethodDelete, path, query, nil, &changed); err != nil {
		return err
	}
	if changed.Changed == 0 {
		return none
	}
	fmt.Fprintf(out, "%d removed\n", changed.Changed)
	_, err := f.tell(ctx, out, query.Get("namespace"), changed.Version, f.wait, true)
	return err
}

// tell prints how many nodes know a version of the list of overrides, or a later one. With a wait it waits for the
// other nodes. With all it returns an error if some still do not know it then.
func (f *backendFlags) tell(ctx context.Context, out io.Writer, namespace string, version uint64, wait time.Duration, all bool) (found server.Overrides, err error) {
	const pause = 50 * time.Millisecond
	deadline := time.Now().Add(wait)
	query := url.Values{"namespace": {namespace}, "rule": {"-"}, "version": {strconv.FormatUint(version, 10)}}
	for {
		if found, err = get[server.Overrides](ctx, f, wire.OverridesPath, query); err != nil {
			return found, err
		}
		known := found.Knowing == found.Nodes && found.Version >= version
		if waits := wait > 0 && !known; !waits || !time.Now().Before(deadline) {
			fmt.Fprintln(out, reach(&found))
			if waits && all {
				return found, fmt.Errorf("some nodes do not know the change after %v", wait)
			}
			return found, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return found, ctx.Err()
		}
	}
}

// reach describes how many nodes know a list.
func reach(o *server.Overrides) string {
	switch {
	case o.Version == 0:
		return "there has never been an override"
	case o.Nodes == 0:
		return "no node has reported in the last minute"
	}
	text := fmt.Sprintf("known to %d of %d nodes", o.Knowing, o.Nodes)
	if o.Knowing < o.Nodes {
		text += ", and to the others within their sync_rate"
	}
	if o.Unfitting > 0 {
		text += fmt.Sprintf("; %d of them can't apply all overrides, because their rules have other limits or keys", o.Unfitting)
	}
	return text
}

// values are the values of a repeated flag.
type values []string

func (v *values) Set(text string) error {
	*v = append(*v, text)
	return nil
}

// or returns the values of a key: those of the flag or, without any, the operands.
func (v values) or(operands []string) ([]string, error) {
	if len(v) > 0 {
		if len(operands) > 0 {
			return nil, fmt.Errorf("%w: --key: want all values of the key as --key, or none", errUsage)
		}
		operands = v
	}
	for _, value := range operands {
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("%w: want values in UTF-8, got %.80q", errUsage, value)
		}
	}
	return operands, nil
}

// word returns a value of a key, quoted if that makes it clearer.
func word(value string) string {
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == '"' || !strconv.IsPrint(r) }) {
		return strconv.Quote(value)
	}
	return value
}
