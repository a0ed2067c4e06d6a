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

	"weir/internal/transport"
	"weir/internal/wire"
)

// DialOptions configure a [Client]. The zero value is ready to use.
type DialOptions struct {
	// Token is the --token of weir serve. Leave it empty if the server has none.
	Token string
	// TLS configures an https connection: RootCAs for the server's certificate, and Certificates or
	// GetClientCertificate if the server asks for a client certificate. If it is nil, the system's
	// roots are trusted.
	TLS *tls.Config
	// HTTPClient sends the requests if it is not nil. Its transport then configures TLS.
	HTTPClient *http.Client
}

// Client is a [Backend] that sends pushes to weir serve, so that the program needs no access to the
// database. It is safe for concurrent use, and several namespaces may share it.
type Client struct {
	push  string
	token string
	http  *http.Client
	own   *http.Transport // nil with DialOptions.HTTPClient
}

// longestPush bounds a push whose context has no deadline. It is the timeout that weir serve sets
// for its store.
const longestPush = 5 * time.Second

// Dial returns a backend for weir serve at a base URL such as http://weir:9180. It does not connect
// yet, so the server may start later.
func Dial(base string, o DialOptions) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("ratelimit: backend: want a URL such as http://weir:9180, without a user or a query")
	}
	if o.TLS != nil && (u.Scheme != "https" || o.HTTPClient != nil) {
		return nil, errors.New("ratelimit: backend: want TLS only with an https URL and without HTTPClient, whose transport has its own")
	}
	c := &Client{push: u.JoinPath(wire.PushPath).String(), token: o.Token, http: o.HTTPClient}
	if c.http == nil {
		c.own = transport.New(o.TLS)
		c.http = &http.Client{Transport: c.own}
	}
	return c, nil
}

// KeepsDeadlines reports whether Push ends when its context's deadline passes, which is up to
// [DialOptions.HTTPClient] if that is set. See [Backend].
func (c *Client) KeepsDeadlines() bool { return c.own != nil }

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
	// A push counts once, however often it arrives. To net/http this key says so, which is not sent: if a connection of
	// HTTP/1.1 that was used before ends without an answer, the push goes to another.
	request.Header["X-Idempotency-Key"] = nil
	if until, bounded := ctx.Deadline(); bounded {
		// The same header that Envoy sends: the backend answers before this time is over.
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
		return nil, fmt.Errorf("the backend's answer: want at most %d bytes, got more", wire.MaxAnswer+wire.MaxNear)
	}
	return answer, nil
}

// refusal makes an error of an answer whose status is not 200.
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
