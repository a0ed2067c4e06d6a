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

// DialOptions has what a [Server] can be told. The zero value is good.
type DialOptions struct {
	// Token is what weir serve was given as --token; none if empty.
	Token string
	// Client makes the requests. One of its own if nil.
	Client *http.Client
	// TLS is for a URL of https: RootCAs has who may have signed the server's certificate, and
	// Certificates, or GetClientCertificate, what it asks the program for. Without it the system's
	// roots count. It is for a Client of one's own to say, if there is one.
	TLS *tls.Config
}

// Server is the [Backend] that weir serve is, so that a program needs no access to the database. It
// may be used by any number of goroutines, and namespaces.
type Server struct {
	push   string
	token  string
	client *http.Client
}

// longestPush bounds a push whose context has no end, as weir serve bounds its store.
const longestPush = 5 * time.Second

// Dial makes a backend of weir serve's base URL, such as http://weir:9180. It does not wait for the
// server to be there.
func Dial(base string, o DialOptions) (*Server, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("ratelimit: backend: want a URL such as http://weir:9180, without a user or a query")
	}
	if o.TLS != nil && (u.Scheme != "https" || o.Client != nil) {
		return nil, errors.New("ratelimit: backend: want TLS with a URL of https only, and not beside a Client, which has its own")
	}
	if o.Client == nil {
		o.Client = &http.Client{}
		if o.TLS != nil {
			transport := http.DefaultTransport.(*http.Transport).Clone()
			transport.TLSClientConfig = o.TLS.Clone()
			o.Client.Transport = transport
		}
	}
	return &Server{push: u.JoinPath(wire.PushPath).String(), token: o.Token, client: o.Client}, nil
}

// Close closes idle connections.
func (s *Server) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// Push implements [Backend].
func (s *Server) Push(ctx context.Context, push []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestPush)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.push, bytes.NewReader(push))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", wire.ContentType)
	if until, bounded := ctx.Deadline(); bounded {
		// As Envoy does: the backend answers in time what it can.
		request.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", strconv.FormatInt(time.Until(until).Milliseconds(), 10))
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, refusal(response)
	}
	if answer, err = io.ReadAll(io.LimitReader(response.Body, wire.MaxAnswer+1)); err != nil {
		return nil, err
	}
	if len(answer) > wire.MaxAnswer {
		return nil, fmt.Errorf("the backend's answer: want at most %d bytes", wire.MaxAnswer)
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
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
