package backend

import (
	"context"
	"math/rand/v2"
	"time"

	"weir/internal/wire"
)

// Poll waits until there is another list of overrides than the sender of an encoded push has, if
// the push asks for that ([wire.Known.Within]). It also returns when ctx ends or ended is closed.
// Then call Push, whose answer has the news. The version that the sender knows is recorded at once.
//
// Polls return at different times, so that the nodes of a namespace do not all ask for the list
// together.
func (b *Backend) Poll(ctx context.Context, ended <-chan struct{}, body []byte) {
	p, err := wire.DecodePush(body)
	if err != nil || p.Known.Within == 0 {
		return
	}
	_, looked := b.overrides.look(ctx, p)
	looked()
	within := max(lookEvery, time.Duration(min(p.Known.Within, longestWithin))*time.Millisecond)
	if b.overrides.poll(ctx, ended, p.Namespace, within, p.Known.Version) {
		select {
		case <-time.After(rand.N(within)):
		case <-ctx.Done():
		case <-ended:
		}
	}
}

// longestWithin bounds Within, in milliseconds.
const longestWithin = uint64(wire.LongestPoll / 1e6)

// poll waits until the version of the list differs from of, and reports whether it does.
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

// watch checks whether another backend has changed a list, as long as polls wait for that.
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
		<-time.After(within)
	}
}
