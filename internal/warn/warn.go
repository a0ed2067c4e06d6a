// Package warn reports keys that near a limit, in a log and by a webhook. If several backends share
// a store, only one of them reports a key, once per window of its limit.
package warn

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/share"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

const (
	// maxQueued bounds the warnings that wait for the store, and those that wait for the webhook. A
	// namespace has at most half of them.
	maxQueued = 2048
	// maxRemembered bounds the warnings that are known to be reported.
	maxRemembered = 8192
	// storeTimeout and postTimeout bound a single call.
	storeTimeout = 5 * time.Second
	postTimeout  = 10 * time.Second
	// claims is the namespace of the counters that record which warnings were reported.
	claims = "weir.warnings"
)

// pauses are the pauses before a warning is posted again.
var pauses = [...]time.Duration{time.Second, 5 * time.Second, 25 * time.Second}

// Options configure a Warner.
type Options struct {
	Store  store.Store
	Logger *slog.Logger
	// Registry gets the metrics.
	Registry prometheus.Registerer
	// Webhook is the URL that gets each warning as a POST with JSON; empty for none. It may be
	// secret, and is never logged.
	Webhook string
	// Secret signs the posts, so that the webhook can tell them from others; empty for no
	// signature.
	Secret string
	// Now is the clock; nil means time.Now. Pause waits before the webhook is tried again, or until
	// ctx ends; nil means a real pause.
	Now   func() time.Time
	Pause func(ctx context.Context, d time.Duration)
}

// Warning is the body of a request to the webhook.
type Warning struct {
	Namespace string `json:"namespace"`
	Rule      string `json:"rule"`
	// Limit is the limit's name in header fields: the rule's name, with .2 appended for its second
	// limit.
	Limit string `json:"limit"`
	// Hash is the key's hash in the backend. Values are the values of the rule's selectors, as far
	// as the rule reveals them. A value that was cut ends in "…".
	Hash   string   `json:"hash"`
	Values []string `json:"values,omitempty"`
	// At is the step of the rule's warn_at that the key has reached, as a share of Quota. It is
	// absent if the rule has a single step.
	At float64 `json:"at,omitempty"`
	// Used is how much of Quota was used when the node sent the warning.
	Used  uint64 `json:"used"`
	Quota uint64 `json:"quota"`
	// WindowEnds is nil if hits leave the limit one after the other.
	WindowEnds *time.Time `json:"window_ends,omitempty"`
}

// Warner reports warnings. [New] makes one, and [Warner.Run] runs it.
type Warner struct {
	o      Options
	client http.Client
	heard  chan heard
	posts  chan Warning
	// hearing and posting count the places in these channels.
	hearing, posting  share.Room[string]
	told, undelivered prometheus.Counter
	// Only Run uses these fields: until when a warning counts as reported, and the sequence of the
	// last claim.
	remembered       map[wire.ID]time.Time
	sender, sequence uint64
}

// heard is a warning from a node.
type heard struct {
	namespace string
	wire.Warning
}

// New returns a Warner, and registers its metrics.
func New(o Options) *Warner {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pause == nil {
		o.Pause = pause
	}
	w := &Warner{
		o: o, heard: make(chan heard, maxQueued), posts: make(chan Warning, maxQueued), remembered: map[wire.ID]time.Time{},
		sender: rand.Uint64(),
		client: http.Client{Timeout: postTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		told:   prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_warned_keys_total", Help: "Keys near a limit that this backend has reported, each once a window."}),
		undelivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_undelivered_warnings_total", Help: "Warnings that the webhook did not accept, or that were too many at once.",
		}),
	}
	w.hearing.Most, w.posting.Most = maxQueued, maxQueued
	o.Registry.MustRegister(w.told, w.undelivered)
	return w
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Hear queues warnings from a namespace's nodes, most of which were reported before. It never
// blocks, and is safe for concurrent use. It does not keep the memory of the warnings.
func (w *Warner) Hear(namespace string, warnings []wire.Warning) {
	for _, of := range warnings {
		if !w.hearing.Enter(namespace) {
			w.undelivered.Inc()
			continue
		}
		of.Name = bytes.Clone(of.Name)
		w.heard <- heard{namespace, of}
	}
}

// Run reports warnings until ctx ends. Warnings that were not delivered by then are lost.
func (w *Warner) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { w.post(ctx) })
	for {
		select {
		case h := <-w.heard:
			w.hearing.Leave(h.namespace)
			w.tell(ctx, &h)
		case <-ctx.Done():
			return
		}
	}
}

// tell reports a warning, unless this or another backend has.
func (w *Warner) tell(ctx context.Context, h *heard) {
	now := w.o.Now()
	id := h.claim()
	if now.Before(w.remembered[id]) {
		return
	}
	if len(w.remembered) >= maxRemembered {
		clear(w.remembered) // the store still knows them
	}
	until := now.Add(time.Duration(h.WidthMillis) * time.Millisecond)
	if h.EndMillis != 0 {
		until = time.UnixMilli(int64(h.EndMillis))
	}
	w.remembered[id] = until
	if !w.first(ctx, h, id) {
		return
	}
	w.told.Inc()
	warning := h.warning()
	attributes := []any{"namespace", warning.Namespace, "limit", warning.Limit, "key", warning.Hash}
	if len(warning.Values) > 0 {
		attributes = append(attributes, "values", strings.Join(warning.Values, ","))
	}
	if warning.At != 0 {
		attributes = append(attributes, "at", warning.At)
	}
	attributes = append(attributes, "used", warning.Used, "of", warning.Quota)
	if warning.WindowEnds != nil {
		attributes = append(attributes, "until", *warning.WindowEnds)
	}
	w.o.Logger.Warn("a key nears its limit", attributes...)
	if w.o.Webhook == "" {
		return
	}
	if !w.posting.Enter(warning.Namespace) {
		w.undelivered.Inc()
		return
	}
	w.posts <- warning
}

// claim returns the identity of a warning in stores. It differs by step, and by window if windows
// end. Otherwise a warning lasts for the time of a window.
func (h *heard) claim() (id wire.ID) {
	var text []byte
	for _, part := range []string{h.namespace, h.Rule, string(h.ID[:])} {
		text = append(append(text, byte(len(part))), part...)
	}
	text = binary.LittleEndian.AppendUint64(append(text, h.Limit), h.EndMillis)
	if h.At != 0 {
		text = binary.LittleEndian.AppendUint64(text, h.At)
	}
	sum := sha256.Sum256(text)
	copy(id[:], sum[:])
	return id
}

// first reports whether no backend has reported a warning: the store then grants the only hit of a
// counter, which it keeps for the time of the limit's window. If the store fails, first returns
// true, because two reports are better than none.
func (w *Warner) first(ctx context.Context, h *heard, id wire.ID) bool {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	w.sequence++
	out, err := w.o.Store.Push(ctx, &wire.Push{
		Namespace: claims, Sender: w.sender, Sequence: w.sequence, Floor: w.sequence,
		Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{{
			LimitCounter: wire.LimitCounter{ID: id, Kind: uint8(window.FirstHitWindow), WidthMillis: h.WidthMillis}, Limit: 1, Cost: 1,
		}}}},
	}, 1)
	return err != nil || len(out.Answer.Grants) == 0 || out.Answer.Grants[0].Units > 0
}

// warning returns the warning in the form for people.
func (h *heard) warning() Warning {
	t := Warning{Namespace: h.namespace, Rule: h.Rule, Limit: h.Rule, Hash: hex.EncodeToString(h.ID[:]), At: float64(h.At) / 1000, Used: h.Used, Quota: h.Quota}
	if h.Limit > 0 {
		t.Limit += "." + strconv.Itoa(int(h.Limit)+1)
	}
	for rest := h.Name; len(rest) > 0; {
		value, cut, next, ok := wire.NextValue(rest)
		if !ok {
			break
		}
		text := strings.ToValidUTF8(string(value), "\uFFFD")
		if cut {
			text += "…"
		}
		t.Values, rest = append(t.Values, text), next
	}
	if h.EndMillis != 0 {
		ends := time.UnixMilli(int64(h.EndMillis)).UTC()
		t.WindowEnds = &ends
	}
	return t
}

// post posts warnings to the webhook, one after the other.
func (w *Warner) post(ctx context.Context) {
	for {
		select {
		case warning := <-w.posts:
			w.posting.Leave(warning.Namespace)
			if err := w.deliver(ctx, &warning); err != nil && ctx.Err() == nil {
				w.undelivered.Inc()
				w.o.Logger.Error("the webhook has not accepted a warning", "limit", warning.Limit, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// deliver posts a warning, several times if necessary. Its error does not contain the URL.
func (w *Warner) deliver(ctx context.Context, warning *Warning) error {
	body, err := json.Marshal(warning)
	if err != nil {
		return err
	}
	for _, before := range append([]time.Duration{0}, pauses[:]...) {
		if before > 0 {
			w.o.Pause(ctx, before)
		}
		var again bool
		if again, err = w.postOnce(ctx, body); err == nil || !again || ctx.Err() != nil {
			break
		}
	}
	return err
}

// sign returns the value of the header Weir-Signature: the time in seconds of Unix time, and the
// HMAC of that time, a period and the body.
func sign(secret string, body []byte, now time.Time) string {
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(at + "."))
	_, _ = mac.Write(body)
	return "t=" + at + ",sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// postOnce posts a warning. If it fails, again reports whether another attempt may succeed.
func (w *Warner) postOnce(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.Webhook, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("its URL is invalid")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "weir")
	if w.o.Secret != "" {
		request.Header.Set("Weir-Signature", sign(w.o.Secret, body, w.o.Now()))
	}
	response, err := w.client.Do(request)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		return true, err
	}
	// Read the answer, within bounds, so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
	_ = response.Body.Close()
	if response.StatusCode < 300 {
		return false, nil
	}
	return response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusRequestTimeout,
		fmt.Errorf("got %s", response.Status)
}
