package backend

import (
	"context"
	"math/rand/v2"
	"time"
)

// Poll waits until a namespace has another list of overrides than that of a version, or until ctx ends, or
// ended is closed.
// It looks for what other backends have changed each within at least, and leaves up to as much time
// before it returns: otherwise all nodes of a namespace would come at the same time.
func (b *Backend) Poll(ctx context.Context, ended <-chan struct{}, namespace string, within time.Duration, of uint64) {
	if b.overrides.poll(ctx, ended, namespace, max(within, lookEvery), of) {
		apart := time.NewTimer(rand.N(within + 1))
		defer apart.Stop()
		select {
		case <-apart.C:
		case <-ctx.Done():
		case <-ended:
		}
	}
}

// poll reports whether the list has become another one than that of a version.
func (o *overrides) poll(ctx context.Context, ended <-chan struct{}, namespace string, within time.Duration, of uint64) (other bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.of(namespace)
	if l.polls++; !l.watched {
		l.watched, l.within = true, within
		go o.watch(namespace, l)
	}
	defer func() { l.polls-- }()
	for l.within = min(l.within, within); !l.known || l.version == of; {
		if l.renewed == nil {
			l.renewed = make(chan struct{})
		}
		renewed := l.renewed
		o.mu.Unlock()
		over := false
		select {
		case <-renewed:
		case <-ctx.Done():
			over = true
		case <-ended:
			over = true
		}
		if o.mu.Lock(); over {
			return false
		}
	}
	return true
}

// watch looks whether another backend has changed a list, for as long as polls wait for that.
func (o *overrides) watch(namespace string, l *list) {
	for {
		o.mu.Lock()
		if l.polls == 0 {
			l.watched = false
			o.mu.Unlock()
			return
		}
		reads, within := !l.reading && o.now().Sub(l.at) >= min(l.within, lookEvery), l.within
		l.reading = l.reading || reads
		o.mu.Unlock()
		if reads {
			ctx, cancel := context.WithTimeout(context.Background(), Timeout)
			o.read(ctx, namespace, l)
			cancel()
		}
		time.Sleep(within)
	}
}
