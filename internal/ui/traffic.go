package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/config"
)

const (
	maxRate  = 200
	maxUsers = 50
	maxBurst = 1000
	// together is the most requests that are under way at once. Further requests wait.
	together = 64
	// pace is the time between two looks for requests that are due.
	pace = 20 * time.Millisecond
)

// Load is the continuous traffic.
type Load struct {
	// Rate is in requests per second, from Users users in turn.
	Rate  int `json:"rate"`
	Users int `json:"users"`
	// Node is the number of the node that gets the requests, or -1 for all nodes in turn.
	Node int `json:"node"`
	// Rule is the rule that requests match.
	Rule string `json:"rule"`
}

// Sent counts requests by their outcome.
type Sent struct {
	Passed  int64 `json:"passed"`
	Refused int64 `json:"refused"`
	// Failed counts requests with a server error or without an answer.
	Failed int64 `json:"failed"`
}

// traffic sends requests to nodes. Their users are those that the load's rule tells apart.
type traffic struct {
	nodes  []string
	rules  []config.Rule
	client *http.Client
	now    func() time.Time
	due    chan demand

	mu     sync.Mutex
	load   Load
	sent   Sent
	number int
}

type demand struct {
	node, user int
	rule       *config.Rule
}

// newTraffic returns traffic for the first enforced rule, or else the first rule.
func newTraffic(nodes []string, c *config.Config, now func() time.Time) *traffic {
	first := max(0, slices.IndexFunc(c.Rules, func(r config.Rule) bool { return !r.Shadow }))
	return &traffic{
		nodes: nodes, rules: c.Rules, now: now, load: Load{Users: 1, Node: -1, Rule: c.Rules[first].Name}, due: make(chan demand, maxBurst),
		client: &http.Client{
			Timeout:       5 * time.Second,
			Transport:     &http.Transport{MaxIdleConnsPerHost: together, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// run sends the requests that are due until ctx ends.
func (t *traffic) run(ctx context.Context) {
	var group sync.WaitGroup
	defer t.client.CloseIdleConnections()
	defer group.Wait()
	for range together {
		group.Go(func() {
			for {
				select {
				case d := <-t.due:
					t.count(t.ask(ctx, d))
				case <-ctx.Done():
					return
				}
			}
		})
	}
	ticks := time.Tick(pace)
	owed, last := 0.0, t.now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		now := t.now()
		t.mu.Lock()
		load := t.load
		t.mu.Unlock()
		// Requests that could not be sent within a second are dropped.
		owed = min(owed+float64(load.Rate)*now.Sub(last).Seconds(), float64(max(load.Rate, 1)))
		last = now
		for ; owed >= 1; owed-- {
			t.next(load)
		}
	}
}

// next queues a request of the next user. It reports false if too many wait.
func (t *traffic) next(l Load) bool {
	t.mu.Lock()
	number := t.number
	t.number++
	t.mu.Unlock()
	node := l.Node
	if node < 0 {
		// Each user goes to all nodes.
		node = (number / l.Users) % len(t.nodes)
	}
	select {
	case t.due <- demand{node, number % l.Users, t.rule(l.Rule)}:
		return true
	default:
		return false
	}
}

// rule returns the rule of a name; nil if there is none.
func (t *traffic) rule(name string) *config.Rule {
	if at := slices.IndexFunc(t.rules, func(r config.Rule) bool { return r.Name == name }); at >= 0 {
		return &t.rules[at]
	}
	return nil
}

func (t *traffic) set(l Load) error {
	switch {
	case t.rule(l.Rule) == nil:
		return fmt.Errorf("rule: the configuration has no rule %.80q", l.Rule)
	case l.Rate < 0 || l.Rate > maxRate:
		return fmt.Errorf("rate: want 0 to %d, got %d", maxRate, l.Rate)
	case l.Users < 1 || l.Users > maxUsers:
		return fmt.Errorf("users: want 1 to %d, got %d", maxUsers, l.Users)
	case l.Node < -1 || l.Node >= len(t.nodes):
		return fmt.Errorf("node: want -1 to %d, got %d", len(t.nodes)-1, l.Node)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.load = l
	return nil
}

// burst sends requests at once, with the node and users of the continuous traffic.
func (t *traffic) burst(requests int) error {
	if requests < 1 || requests > maxBurst {
		return fmt.Errorf("requests: want 1 to %d, got %d", maxBurst, requests)
	}
	t.mu.Lock()
	load := t.load
	t.mu.Unlock()
	for range requests {
		if !t.next(load) {
			return errors.New("too many requests wait: try again")
		}
	}
	return nil
}

// ask sends a request, and returns the status of its answer; 0 if there is none.
func (t *traffic) ask(ctx context.Context, d demand) (status int) {
	request, err := t.request(ctx, d)
	if err != nil {
		return 0
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return 0
	}
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	switch err = errors.Join(err, answer.Body.Close()); {
	case err != nil:
		return 0
	case answer.Header.Get("x-envoy-ratelimited") != "":
		return http.StatusTooManyRequests
	}
	return answer.StatusCode
}

// count counts an answer by its status; 0 is no answer.
func (t *traffic) count(status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case status == http.StatusTooManyRequests:
		t.sent.Refused++
	case status == 0 || status >= 500:
		t.sent.Failed++
	default:
		t.sent.Passed++
	}
}

func (t *traffic) told() (Load, Sent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.load, t.sent
}

// values returns the values of a user for the selectors of the rule's key.
func values(rule *config.Rule, user int) []string {
	all := make([]string, len(rule.Key))
	for i, s := range rule.Key {
		all[i] = fmt.Sprint("user-", user+1)
		switch s.Kind {
		case config.SelectMethod:
			all[i] = method(rule)
		case config.SelectHost:
			all[i] = fmt.Sprintf("user-%d.test", user+1)
		case config.SelectPath:
			all[i] = fmt.Sprintf("/user-%d", user+1)
		case config.SelectClientIP:
			all[i] = "127.0.0.1"
		case config.SelectLiteral:
			all[i] = s.Name
		}
	}
	return all
}

func method(rule *config.Rule) string {
	if len(rule.Match.Methods) > 0 {
		return rule.Match.Methods[0]
	}
	return http.MethodGet
}

// request makes a request of a user that matches the rule, as far as a match can be made up.
func (t *traffic) request(ctx context.Context, d demand) (*http.Request, error) {
	u := url.URL{Scheme: "http", Host: t.nodes[d.node], Path: "/"}
	if p := d.rule.Match.Path; p != nil && (p.Op == config.Exact || p.Op == config.Prefix) {
		u.Path = p.Value
	}
	query := url.Values{}
	header := http.Header{}
	host := ""
	if h := d.rule.Match.Host; h != nil && h.Op == config.Exact {
		host = h.Value
	}
	for _, m := range d.rule.Match.Conditions {
		if m.Of.Kind != config.SelectHeader {
			continue
		}
		switch m.Op {
		case config.Exact, config.Prefix, config.Suffix:
			header.Set(m.Of.Name, m.Value)
		case config.Present:
			header.Set(m.Of.Name, "1")
		}
	}
	for i, value := range values(d.rule, d.user) {
		switch s := d.rule.Key[i]; s.Kind {
		case config.SelectHeader:
			header.Set(s.Name, value)
		case config.SelectCookie:
			header.Add("Cookie", s.Name+"="+value)
		case config.SelectQuery:
			query.Set(s.Name, value)
		case config.SelectHost:
			host = cmp.Or(host, value)
		case config.SelectPath:
			if d.rule.Match.Path == nil {
				u.Path = value
			}
		case config.SelectPathSegment:
			segments := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
			for len(segments) < s.Segment {
				segments = append(segments, "")
			}
			segments[s.Segment-1] = value
			u.Path = "/" + strings.Join(segments, "/")
		}
	}
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method(d.rule), u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header, r.Host = header, host
	return r, nil
}
