// Package backend answers the pushes of nodes from a store. It also counts the nodes. It serves
// nothing: package server puts it behind HTTP, and programs that open a store of their own call it
// directly.
package backend

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"weir/internal/store"
	"weir/internal/wire"
)

// Timeout bounds a call of a store. Nodes give up sooner, and push again.
const Timeout = 5 * time.Second

// patience is how long a call of the store may take: less than the caller waits, so that an
// incomplete answer still arrives.
func patience(ctx context.Context) time.Duration {
	if until, bounded := ctx.Deadline(); bounded {
		return min(Timeout, time.Until(until)*3/4)
	}
	return Timeout
}

// Backend answers pushes. Make it with New. It is safe for concurrent use.
type Backend struct {
	// Now is the clock by which senders of usage are heard, and reports get old.
	Now       func() time.Time
	store     store.Store
	warned    func(namespace string, warnings []wire.Warning)
	nodes     membership
	overrides overrides
	known     known
	tellers   tellers
	names     names
}

// OnWarnings sets the function that receives the warnings in reports. take must not block, and may
// be called concurrently. Call OnWarnings before the backend is used.
func (b *Backend) OnWarnings(take func(namespace string, warnings []wire.Warning)) { b.warned = take }

// New makes a backend for a store.
func New(counters store.Store) *Backend {
	return &Backend{
		Now: time.Now, store: counters, nodes: membership{now: time.Now},
		overrides: overrides{now: time.Now, store: counters, lists: map[string]*list{}},
		known:     known{now: time.Now, store: counters},
	}
}

// Reply is the result of a push.
type Reply struct {
	store.Outcome
	// Body is the encoded answer, and Items how many totals it has.
	Body  []byte
	Items int
	// Written means that the store had to write: the push was not a read, and was not applied
	// before.
	Written bool
	// Used is the usage message that was counted; nil for anything else. Folded is how many of its
	// rows were counted together with others.
	Used   *wire.Used
	Folded int
}

// Push applies an encoded push, once, however often it arrives. If the bytes are not a push, or the
// store will never accept it, the error wraps [store.ErrInvalid] and nothing has changed. After any
// other error the push may have been applied, and should be sent again.
//
// Push also accepts reports, which it keeps and answers with an empty body or [wire.TellRules], and
// usage messages, which are counted once.
func (b *Backend) Push(ctx context.Context, body []byte) (Reply, error) {
	if wire.IsReport(body) {
		tell, err := b.report(ctx, body)
		return Reply{Body: tell}, err
	}
	if wire.IsUsed(body) {
		return b.account(ctx, body)
	}
	p, err := wire.DecodePush(body)
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	list, looked := b.overrides.look(ctx, p)
	outcome, err := b.apply(ctx, p)
	if looked(); err != nil {
		return Reply{}, err
	}
	outcome.Answer.Overrides = b.overrides.answer(p, list)
	return Reply{
		Outcome: outcome, Body: wire.AppendAnswer(nil, &outcome.Answer), Items: len(p.Items),
		Written: !outcome.Duplicate && !store.IsRead(p),
	}, nil
}

// apply counts a push's node, and applies the push.
func (b *Backend) apply(ctx context.Context, p *wire.Push) (store.Outcome, error) {
	nodes, err := b.nodes.count(ctx, b.store, p)
	if err != nil {
		return store.Outcome{}, err
	}
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return b.store.Push(ctx, p, nodes)
	}
	ctx, span = span.TracerProvider().Tracer("weir").Start(ctx, "store push", trace.WithAttributes(attribute.String("weir.namespace", p.Namespace),
		attribute.Int("weir.items", len(p.Items)), attribute.Int("weir.takes", len(p.Takes))))
	defer span.End()
	outcome, err := b.store.Push(ctx, p, nodes)
	if span.SetAttributes(attribute.Bool("weir.duplicate", outcome.Duplicate)); err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return outcome, err
}
