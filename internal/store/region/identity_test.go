package region

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// filed is a region with a store in a file.
type filed struct {
	*Store
	own *file.Store
}

// onFile starts a region with a store in a file.
func onFile(t *testing.T, parent Parent, policy Policy, path string) (filed, error) {
	t.Helper()
	return onFileAt(t, parent, policy, path, 0)
}

// onFileAt is onFile on a machine whose clock is ahead.
func onFileAt(t *testing.T, parent Parent, policy Policy, path string, ahead time.Duration) (filed, error) {
	t.Helper()
	r := New(Options{Parent: parent, Policy: policy, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Now().Add(ahead) }})
	meeting, cancel := context.WithTimeout(t.Context(), attemptTimeout)
	defer cancel()
	if err := r.Meet(meeting); err != nil {
		t.Log(err)
	}
	own := must.Get(file.Open(path, file.Options{Now: r.Now, Granter: r, NoSync: true}))(t)
	if err := r.Start(t.Context(), own); err != nil {
		r.end()
		return filed{}, errors.Join(err, own.Close())
	}
	return filed{r, own}, nil
}

// kill ends a region like the end of its machine, without telling the parent.
func (f filed) kill(t *testing.T) {
	t.Helper()
	f.end()
	f.tasks.Wait()
	must.Report(t, f.own.Close())
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	must.OK(t, os.WriteFile(to, must.Get(os.ReadFile(from))(t), 0o600))
}

// A region whose machine's clock is ahead forgets no hits when it starts again.
func TestRestartAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.db")
	synctest.Test(t, func(t *testing.T) {
		const ahead, limit = 2 * time.Hour, 1000
		shared := memory.New(memory.Options{})
		sea := &ocean{parent: backend.New(shared), random: rand.New(rand.NewPCG(1, 2))}
		room, passed := hourly(1, window.FixedWindow, limit), uint64(0)
		for id := range uint64(3) {
			one := must.Get(onFileAt(t, sea, Deny, path, ahead))(t)
			c := &client{t: t, of: one, id: 1 + id}
			for range 10 {
				passed += c.take(room, 1, limit/20, false).Units
				<-time.After(300 * time.Millisecond)
			}
			one.kill(t)
		}
		must.Equal(t, passed, limit, "hits passed of a limit of %d", limit)
	})
}

// The bound of the hits above limits survives a kill, and disappears when the windows concerned
// have ended, or soon after.
func TestBoundOutlivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "region.db")
	synctest.Test(t, func(t *testing.T) {
		sea := &ocean{parent: backend.New(memory.New(memory.Options{})), random: rand.New(rand.NewPCG(1, 2))}
		start := func() filed {
			return must.Get(onFile(t, sea, Local, path))(t)
		}
		r := start()
		c := &client{t: t, of: r, id: 1}
		room := hourly(1, window.FixedWindow, 1000)
		c.take(room, 1, 1, false)
		sea.cut(10 * time.Hour)
		for range 100 { // all hits that the region holds, and more
			c.take(room, 1, 1, false)
		}
		want := r.Overshoot()["shop"]
		for i := range 2 {
			r.kill(t)
			r = start()
			if got := r.Overshoot()["shop"]; got != want || want == 0 {
				t.Errorf("start %d: a bound of %d, want %d", i, got, want)
			}
		}
		c = &client{t: t, of: r, id: 2}
		larger := hourly(2, window.FixedWindow, 5000)
		c.take(larger, 1, 1, false)
		<-time.After(time.Hour)
		r.kill(t)
		r = start()
		must.Equal(t, r.Overshoot()["shop"], 5000, "a bound of")
		<-time.After(90 * time.Minute)
		must.Same(t, r.Overshoot(), nil, "bounds after all windows have ended")
		r.kill(t)
		r = start()
		must.Same(t, r.Overshoot(), nil, "bounds after all windows have ended")
		r.kill(t)
	})
}

// Two regions start from copies of a file, and the second is refused.
func TestCopiesOfAFile(t *testing.T) {
	dir := t.TempDir()
	path, second, third := filepath.Join(dir, "region.db"), filepath.Join(dir, "copy.db"), filepath.Join(dir, "late.db")
	synctest.Test(t, func(t *testing.T) {
		sea := &ocean{parent: backend.New(memory.New(memory.Options{})), random: rand.New(rand.NewPCG(1, 2))}
		r := must.Get(onFile(t, sea, Share, path))(t)
		(&client{t: t, of: r, id: 1}).take(hourly(1, window.FixedWindow, 1000), 1, 1, false)
		r.kill(t)
		copied(t, path, second)
		copied(t, path, third)
		r = must.Get(onFile(t, sea, Share, path))(t)
		_, err := onFile(t, sea, Share, second)
		must.Is(t, err, ErrCopied, "the second starts")
		// While the parent is away the copy is not noticed. After that the region stops answering.
		sea.cut(time.Minute)
		late := must.Get(onFile(t, sea, Share, third))(t)
		<-time.After(2 * time.Minute)
		must.Is(t, late.Ping(t.Context()), ErrCopied, "error")
		must.Report(t, r.Ping(t.Context()))
		must.Report(t, errors.Join(late.Close(), late.own.Close(), r.Close(), r.own.Close()))
	})
}

// A region whose file was copied while it ran stops answering soon after the copy has started.
func TestCopyOfARunningRegion(t *testing.T) {
	const limit = 1000
	dir := t.TempDir()
	path, second := filepath.Join(dir, "region.db"), filepath.Join(dir, "copy.db")
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New(memory.Options{})
		sea := &ocean{parent: backend.New(shared), random: rand.New(rand.NewPCG(1, 2))}
		r := must.Get(onFile(t, sea, Share, path))(t)
		room := hourly(1, window.FixedWindow, limit)
		(&client{t: t, of: r, id: 1}).take(room, 1, 1, false)
		<-time.After(3 * time.Second)
		copied(t, path, second)
		next := must.Get(onFile(t, sea, Share, second))(t)
		<-time.After((lookTicks + 1) * every)
		must.Is(t, r.Ping(t.Context()), ErrCopied, "error")
		if _, err := r.Push(t.Context(), &wire.Push{Namespace: "shop", Sequence: 1, Floor: 1}, 1); !errors.Is(err, ErrCopied) {
			t.Errorf("error %v, want %v", err, ErrCopied)
		}
		passed := uint64(1)
		c := &client{t: t, of: next, id: 1, sequence: 100}
		for range 3 {
			passed += c.take(room, 1, limit, false).Units
			<-time.After(2 * time.Second)
		}
		must.Equal(t, passed, limit, "hits passed")
		must.Report(t, errors.Join(r.Close(), r.own.Close(), next.Close(), next.own.Close()))
		must.Equal(t, counted(t, shared, room), limit, "the parent counts hits")
	})
}

// Of a region whose file was copied while the parent was away and the copy, one stops answering soon after the parent is
// back, and a further copy is refused.
func TestCopyBeforeTheClaim(t *testing.T) {
	dir := t.TempDir()
	path, second, third := filepath.Join(dir, "region.db"), filepath.Join(dir, "copy.db"), filepath.Join(dir, "late.db")
	synctest.Test(t, func(t *testing.T) {
		sea := &ocean{parent: backend.New(memory.New(memory.Options{})), random: rand.New(rand.NewPCG(1, 2))}
		must.Get(onFile(t, sea, Share, path))(t).kill(t)
		sea.cut(time.Minute)
		r := must.Get(onFile(t, sea, Share, path))(t)
		copied(t, path, second)
		copied(t, path, third)
		next := must.Get(onFile(t, sea, Share, second))(t)
		<-time.After(2 * time.Minute)
		must.Is(t, r.Ping(t.Context()), ErrCopied, "error")
		must.Report(t, next.Ping(t.Context()))
		if late, err := onFile(t, sea, Share, third); !errors.Is(err, ErrCopied) {
			t.Errorf("error %v, want %v", err, ErrCopied)
			must.Report(t, errors.Join(late.Close(), late.own.Close()))
		}
		must.Report(t, errors.Join(r.Close(), r.own.Close(), next.Close(), next.own.Close()))
	})
}

// A region that got no answer to its claim can start again with its identity.
func TestClaimWithoutAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "region.db")
	synctest.Test(t, func(t *testing.T) {
		m := &moody{sea: &ocean{parent: backend.New(memory.New(memory.Options{})), random: rand.New(rand.NewPCG(1, 2))}}
		for i := range 6 {
			m.set(mood{unheard: i%2 == 1})
			r, err := onFile(t, m, Share, path)
			must.OKf(t, err, "start %d", i)
			<-time.After(time.Duration(i) * time.Second)
			must.Is(t, r.Ping(t.Context()), nil, "start %d", i)
			r.kill(t)
		}
	})
}

// A region that starts again while its parent has lost the partition of its claim serves keys in the others, and claims
// once the partition is back: so it can stop if a copy goes on.
func TestClaimInALostPartition(t *testing.T) {
	dir := t.TempDir()
	path, second := filepath.Join(dir, "region.db"), filepath.Join(dir, "copy.db")
	synctest.Test(t, func(t *testing.T) {
		m := &moody{sea: &ocean{parent: backend.New(memory.New(memory.Options{})), random: rand.New(rand.NewPCG(1, 2))}}
		must.Get(onFile(t, m, Deny, path))(t).kill(t)
		m.set(mood{apart: func(of wire.LimitCounter) bool { return of.WidthMillis == wire.MaxWidthMillis }, down: true})
		var log bytes.Buffer
		r := New(Options{Parent: m, Policy: Deny, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		own := must.Get(file.Open(path, file.Options{Now: r.Now, Granter: r, NoSync: true}))(t)
		must.OK(t, r.Start(t.Context(), own))
		copied(t, path, second)
		c, room := &client{t: t, of: r, id: 1}, hourly(1, window.FixedWindow, 1000)
		for i := range 25 {
			began := time.Now()
			must.Equal(t, c.take(room, 1, 1, false).Units, 1, "push %d: refused, though the parent has the key", i)
			must.Equal(t, i == 0 || time.Since(began) == 0, true, "push %d waited %v for hits that the region could hold", i, time.Since(began))
			<-time.After(every)
		}
		synctest.Wait()
		must.Equal(t, strings.Count(log.String(), "can't be told apart for now"), 1, "times told that copies can't be told apart:\n%s", &log)
		m.set(mood{})
		<-time.After((lookTicks + 1) * every)
		synctest.Wait()
		must.Equal(t, strings.Count(log.String(), "are told apart again"), 1, "times told that they can:\n%s", &log)
		next := must.Get(onFile(t, m, Deny, second))(t)
		<-time.After((lookTicks + 1) * every)
		must.Is(t, r.Ping(t.Context()), ErrCopied, "error")
		must.Report(t, errors.Join(next.Close(), next.own.Close(), r.Close(), own.Close()))
	})
}

// A damaged record does not make a new region, which would push all its hits again.
func TestDamagedRecord(t *testing.T) {
	whole := record{identity: make([]byte, identityBytes), most: 1, incarnation: 2, successor: 3, bounds: map[string]excess{"shop": {4, 5}, "a": {6, 7}}}
	kept := whole.encode()
	if got, err := parseRecord(kept); err != nil || got.most != 1 || got.incarnation != 2 || got.successor != 3 || len(got.bounds) != 2 || got.bounds["a"] != (excess{6, 7}) {
		t.Errorf("%+v, %v", got, err)
	}
	whole.bounds = nil
	for n := range kept {
		got, err := parseRecord(kept[:n])
		if err == nil && n != len(whole.encode()) && len(got.bounds) != 1 {
			t.Errorf("%d bytes of %d are taken for a record: %+v", n, len(kept), got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		own := memory.New(memory.Options{})
		must.Get(own.SetOverrides(t.Context(), identityNamespace, 0, kept[:identityBytes]))(t)
		r := New(Options{Parent: &ocean{}, Logger: slog.New(slog.DiscardHandler)})
		must.Is(t, r.Start(t.Context(), own), errRecord, "error")
		r.end()
	})
}
