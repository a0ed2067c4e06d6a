package ratelimit

import (
	"bytes"
	"context"
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

	"weir/internal/store"
	"weir/internal/wire"
)

// DialOptions has what a [Backend] can be told. The zero value is good.
type DialOptions struct {
	// Token is what weir serve was given as --token; none if empty.
	Token string
	// Client makes the requests. One of its own if nil, which gives a push up after five seconds.
	Client *http.Client
}

// Backend is a [Store] behind weir serve, so that a program needs no access to the database. It may be used by any number of
// goroutines.
type Backend struct {
	base   *url.URL
	token  string
	client *http.Client
}

// dialTimeout bounds a push, as weir serve bounds its store.
const dialTimeout = 5 * time.Second

// Dial makes a store of a counter backend's base URL, such as http://weir:9180. It does not wait for the backend to be there.
func Dial(base string, o DialOptions) (*Backend, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("ratelimit: backend: want a URL such as http://weir:9180, without a user or a query")
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	return &Backend{base: u, token: o.Token, client: o.Client}, nil
}

// Close closes idle connections.
func (b *Backend) Close() error {
	b.client.CloseIdleConnections()
	return nil
}

// Push implements [Store]. The backend knows by itself how many nodes there are.
func (b *Backend) Push(ctx context.Context, p *wire.Push, _ uint64) (store.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	response, err := b.do(ctx, http.MethodPost, wire.PushPath, nil, wire.AppendPush(nil, p))
	if err != nil {
		return store.Outcome{}, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, wire.MaxAnswer+1))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return store.Outcome{}, err
	}
	answer, err := wire.DecodeAnswer(body)
	if err != nil {
		return store.Outcome{}, fmt.Errorf("the backend's answer: %w", err)
	}
	if len(answer.Totals) != len(p.Items) || len(answer.Grants) != len(p.Takes) {
		return store.Outcome{}, fmt.Errorf("the backend's answer: want %d totals and %d grants, got %d and %d",
			len(p.Items), len(p.Takes), len(answer.Totals), len(answer.Grants))
	}
	return store.Outcome{Answer: *answer}, nil
}

// Counters implements [Store].
func (b *Backend) Counters(ctx context.Context, namespace string, widths []uint64, visit func(store.Counter) error) error {
	query := url.Values{"namespace": {namespace}}
	for _, width := range widths {
		query.Add("width_ms", strconv.FormatUint(width, 10))
	}
	response, err := b.do(ctx, http.MethodGet, "/v1/counters", query, nil)
	if err != nil {
		return err
	}
	lines := json.NewDecoder(response.Body)
	for err == nil {
		var line store.CounterLine
		if err = lines.Decode(&line); err == nil {
			var c store.Counter
			if c, err = line.Counter(); err == nil {
				err = visit(c)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, response.Body.Close())
}

// do sends a request, and returns an answer of status 200.
func (b *Backend) do(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	u := b.base.JoinPath(path)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", wire.ContentType)
	}
	if b.token != "" {
		request.Header.Set("Authorization", "Bearer "+b.token)
	}
	response, err := b.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	return nil, errors.Join(refusal(response), response.Body.Close())
}

// refusal says why the backend has not done what it was asked for. A push that it says is invalid will never be taken; it wraps
// [store.ErrInvalid] then.
func refusal(response *http.Response) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	own := mediaType == "application/problem+json" &&
		json.NewDecoder(io.LimitReader(response.Body, 1<<12)).Decode(&problem) == nil
	err := fmt.Errorf("the backend answered %s: %.200q", response.Status, problem.Detail)
	if own && response.StatusCode == http.StatusBadRequest && strings.HasPrefix(problem.Detail, "body: ") {
		return fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return err
}
