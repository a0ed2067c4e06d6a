package ratelimit

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weir/internal/wire"
)

// DialOptions has what a [Client] can be told. The zero value is good.
type DialOptions struct {
	// Token is the --token of weir serve; empty if it has none.
	Token string
	// TLS is for a URL of https: RootCAs has who may have signed the server's certificate, and
	// Certificates, or GetClientCertificate, what it asks the program for. Without it the system's
	// roots count.
	TLS *tls.Config
	// HTTPClient makes the requests, if it is not nil. TLS is its transport's to say then.
	HTTPClient *http.Client
}

// Client is a [Backend] that asks weir serve, so that a program needs no access to the database. It
// may be used by any number of goroutines, and namespaces.
type Client struct {
	push  string
	token string
	http  *http.Client
	own   *http.Transport // nil if the program has the client
}

// longestPush bounds a push whose context has no end, as weir serve bounds its store.
const longestPush = 5 * time.Second

// Dial makes a backend of weir serve's base URL, such as http://weir:9180. It does not wait for the
// server to be there.
func Dial(base string, o DialOptions) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("ratelimit: backend: want a URL such as http://weir:9180, without a user or a query")
	}
	if o.TLS != nil && (u.Scheme != "https" || o.HTTPClient != nil) {
		return nil, errors.New("ratelimit: backend: want TLS with a URL of https only, and not beside an HTTPClient, which has its own")
	}
	c := &Client{push: u.JoinPath(wire.PushPath).String(), token: o.Token, http: o.HTTPClient}
	if c.http == nil {
		c.own = newTransport(o.TLS)
		c.http = &http.Client{Transport: c.own}
	}
	return c, nil
}

// newTransport is like the default transport, which a program may have replaced by another type.
func newTransport(config *tls.Config) *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if usual, ok := http.DefaultTransport.(*http.Transport); ok {
		t = usual.Clone()
	}
	if config != nil {
		t.TLSClientConfig = config.Clone()
	}
	return t
}

// Close closes the idle connections, unless they are those of [DialOptions.HTTPClient].
func (c *Client) Close() error {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// Push implements [Backend].
func (c *Client) Push(ctx context.Context, push []byte) (answer []byte, err error) {
	if _, bounded := ctx.Deadline(); !bounded {
		within, cancel := context.WithTimeout(ctx, longestPush)
		defer cancel()
		ctx = within
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.push, bytes.NewReader(push))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", wire.ContentType)
	if until, bounded := ctx.Deadline(); bounded {
		// As Envoy does: the backend answers in time what it can.
		request.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", strconv.FormatInt(time.Until(until).Milliseconds(), 10))
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, refusal(response)
	}
	if answer, err = io.ReadAll(io.LimitReader(response.Body, wire.MaxAnswer+wire.MaxNear+1)); err != nil {
		return nil, err
	}
	if len(answer) > wire.MaxAnswer+wire.MaxNear {
		return nil, fmt.Errorf("the backend's answer: want at most %d bytes", wire.MaxAnswer+wire.MaxNear)
	}
	return answer, nil
}

// refusal says why the backend has not taken a push.
func refusal(response *http.Response) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	own := mediaType == "application/problem+json" &&
		json.NewDecoder(io.LimitReader(response.Body, 1<<12)).Decode(&problem) == nil
	err := fmt.Errorf("the backend answered %s: %.200q", response.Status, problem.Detail)
	tooLarge := response.StatusCode == http.StatusRequestEntityTooLarge
	if own && (tooLarge || response.StatusCode == http.StatusBadRequest) && strings.HasPrefix(problem.Detail, "body: ") {
		return fmt.Errorf("%w: %w", ErrPushRefused, err)
	}
	return err
}
