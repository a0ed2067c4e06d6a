package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/open"
	"weir/internal/store/region"
	"weir/internal/transport"
	"weir/internal/trust"
	"weir/ratelimit"
)

// parentFlags name the parent of a region.
type parentFlags struct {
	text, policy, ca string
	token            secret

	url       *url.URL // nil if there is no parent
	given     string
	then      region.Policy
	transport http.RoundTripper
}

func (f *parentFlags) define(flags *flag.FlagSet) {
	flags.StringVar(&f.text, "parent", "",
		"`URL` of another weir serve, which keeps the limits of several regions together: this backend is the region of its nodes, and asks there for hits ahead; with --store memory or file:PATH only")
	f.token.define(flags, "parent-token", "bearer `token` that the parent asks for; better given as WEIR_PARENT_TOKEN or in a file", "`file` with the token, in one line")
	flags.StringVar(&f.ca, "parent-ca", "",
		"`file` with the certificates that sign the parent's certificate, in PEM, WEIR_PARENT_CA if empty, else the system's authorities count; it is read at the start")
	flags.StringVar(&f.policy, "on-parent-failure", "",
		"`POLICY` that holds while the parent does not answer, beside hits that the region holds ahead: share gives out the region's even part of each limit, local decides by what is known of the other regions, deny gives out nothing (default share)")
}

// read validates the flags. Errors wrap [errUsage].
func (f *parentFlags) read(env environment) (err error) {
	if f.text == "" {
		if f.policy != "" || f.ca != "" || f.token.value != "" || f.token.file != "" {
			return fmt.Errorf("%w: --on-parent-failure, --parent-ca, --parent-token: want them with --parent only", errUsage)
		}
		return nil
	}
	u, err := url.Parse(f.text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("%w: --parent: want a URL such as http://weir:9180, without a user or a query", errUsage)
	}
	f.url = u
	if f.policy != "" {
		if f.then, err = region.ParsePolicy(f.policy); err != nil {
			return fmt.Errorf("%w: --on-parent-failure: %w", errUsage, err)
		}
	}
	if f.transport, err = f.dialling(env); err != nil {
		return fmt.Errorf("%w: --parent-ca: %w", errUsage, err)
	}
	f.given, err = f.token.read(env)
	return err
}

// dialling returns the transport to the parent, which trusts the authorities of --parent-ca.
func (f *parentFlags) dialling(env environment) (http.RoundTripper, error) {
	path := cmp.Or(f.ca, env.getenv("WEIR_PARENT_CA"))
	if path == "" {
		return connections(nil), nil
	}
	if f.url.Scheme != "https" {
		return nil, errors.New("want it with a --parent of https only")
	}
	roots, err := trust.Authorities(path)
	if err != nil {
		return nil, err
	}
	return connections(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}), nil
}

// connections returns a transport whose connections to a parent are bounded, even while the parent
// answers none.
func connections(config *tls.Config) *http.Transport {
	t := transport.New(config)
	t.MaxConnsPerHost = maxToParent
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext // else it goes on for long after its push was given up
	return t
}

const (
	// maxToParent bounds the connections to a parent.
	maxToParent = 2048
	dialTimeout = 3 * time.Second
)

// errTooDeep is the error for a parent that has a parent itself.
var errTooDeep = errors.New("--parent: it has a parent itself, and there are only two levels: want that parent's URL")

// toParent marks requests as those of a region. Its errors say that the parent has a parent itself, or refuses
// this push alone.
type toParent struct{ http.RoundTripper }

// longestRefusal is how many bytes of a refusal are read.
const longestRefusal = 1 << 12

func (t toParent) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(server.RegionHeader, "1")
	response, err := t.RoundTripper.RoundTrip(r)
	switch {
	case err != nil || response.StatusCode == http.StatusOK:
		return response, err
	case response.StatusCode == http.StatusConflict:
		return nil, errors.Join(errTooDeep, response.Body.Close())
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, longestRefusal))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if detail := refusedAlone(response, body); detail != "" {
		return nil, fmt.Errorf("%w: %s", region.ErrRefused, detail)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// refusedAlone is why the parent refuses a push, and would take others. It is empty if the parent takes none, or
// somebody else has answered in its place.
func refusedAlone(response *http.Response, body []byte) string {
	var problem struct {
		Detail string `json:"detail"`
	}
	if response.Header.Get("Content-Type") != "application/problem+json" || json.Unmarshal(body, &problem) != nil {
		return ""
	}
	of := map[int]string{
		http.StatusBadRequest: "body: ", http.StatusRequestEntityTooLarge: "body: ", http.StatusUnsupportedMediaType: "body: ",
		http.StatusServiceUnavailable: store.ErrFull.Error(),
	}
	if response.StatusCode == http.StatusForbidden && trust.IsOfNamespace(problem.Detail) {
		return problem.Detail
	}
	if begins := of[response.StatusCode]; begins == "" || !strings.HasPrefix(problem.Detail, begins) {
		return ""
	}
	return problem.Detail
}

// closers closes several values in turn.
type closers []io.Closer

func (c closers) Close() (err error) {
	for _, closer := range c {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// open opens the store, as a region's if there is a parent. It refuses a parent that has a parent
// itself, and does not wait for a parent that can't be reached.
func (f *parentFlags) open(ctx context.Context, s storeFlags, log *slog.Logger) (openStore, http.Handler, error) {
	if f.url == nil {
		opened, err := s.open(nil)
		return opened, nil, err
	}
	client, err := ratelimit.Dial(f.url.String(), ratelimit.DialOptions{Token: f.given, HTTPClient: &http.Client{Transport: toParent{f.transport}}})
	if err != nil {
		return openStore{}, nil, fmt.Errorf("%w: --parent: %w", errUsage, err)
	}
	r := region.New(region.Options{Parent: client, Policy: f.then, Logger: log})
	meeting, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if err := r.Meet(meeting); errors.Is(err, errTooDeep) {
		return openStore{}, nil, fmt.Errorf("%w: %w", errUsage, errTooDeep)
	} else if err != nil && !errors.Is(err, region.ErrRefused) {
		log.Warn("the parent does not answer yet", "error", err)
	}
	own, err := s.open(r)
	if errors.Is(err, open.ErrNoGranter) {
		err = fmt.Errorf("%w: --parent: want it with --store memory or file:PATH only: a region's store is one weir serve's", errUsage)
	}
	if err != nil {
		return openStore{}, nil, err
	}
	if err := r.Start(ctx, own.Store.(region.Own)); err != nil {
		return openStore{}, nil, errors.Join(err, own.Close())
	}
	relay := server.ToParent(f.url, f.given, f.transport, log)
	regional := openStore{r, closers{r, own}}
	if disk, ok := own.Store.(store.OnDisk); ok {
		regional.Store = struct {
			*region.Store
			store.OnDisk
		}{r, disk}
	}
	return regional, relay, nil
}
