package redis

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store"
	"weir/internal/wire"
)

//go:embed used.lua
var usedSource string

var usedScript = goredis.NewScript(usedSource)

// Account implements [store.Store].
func (s *Store) Account(ctx context.Context, u *wire.Used) (done store.Accounted, err error) {
	if err := cmp.Or(store.CheckUsed(u), ctx.Err()); err != nil {
		return done, err
	}
	calendar, err := s.calendar(ctx, u.Namespace)
	if err != nil {
		return done, s.failed(ctx, "account", err)
	}
	keys := []string{s.keys.accountant(u.Namespace, u.Sender)}
	args := []any{u.Sequence, store.UsedSenderLife.Milliseconds(), store.MaxUsed, store.MaxUsed + store.MaxUsedOthers, len(u.Rows)}
	var days []uint32
	for i := range u.Rows {
		r := &u.Rows[i]
		day := calendar.UsedDay(r.Day)
		at := slices.Index(days, day)
		if at < 0 {
			at, days = len(days), append(days, day)
			keys = append(keys, s.keys.used(u.Namespace, day), s.keys.usedRanks(u.Namespace, day))
		}
		ofRule, ofAll := store.OthersLabel(r.Label)
		args = append(args, 2*at+2, r.Label, ofRule, ofAll, r.Hits, r.Budget, rand.Float64())
	}
	for _, day := range days {
		args = append(args, millis(calendar, store.UsedUntil(day)))
	}
	cmd := s.runUsed(ctx, keys, args)
	if done.Folded, err = cmd.Int(); errors.Is(err, goredis.Nil) {
		return store.Accounted{Duplicate: true}, nil
	}
	if err != nil {
		return store.Accounted{}, s.failed(ctx, "account", err)
	}
	return done, nil
}

// runUsed runs the script, and waits until the replicas have its write. The script writes even if
// it adds nothing, because an earlier call may not have waited long enough.
func (s *Store) runUsed(ctx context.Context, keys []string, args []any) *goredis.Cmd {
	if s.replicas == 0 {
		return usedScript.Run(ctx, s.client, keys, args...)
	}
	acks, pipe := &acks{}, s.client.Pipeline() // which waitHook looks at
	cmd := pipe.Eval(ctx, usedSource, keys, args...)
	_, _ = pipe.Exec(context.WithValue(ctx, acksKey{}, acks)) // the command has the error
	if cmd.Err() == nil || errors.Is(cmd.Err(), goredis.Nil) {
		if lacks := acks.lacks(cmd); lacks != nil {
			cmd.SetErr(lacks)
		}
	}
	return cmd
}

// usedPage is how many labels a call of HSCAN asks for.
const usedPage = 500

// Used implements [store.Store].
func (s *Store) Used(ctx context.Context, namespace string, from, to uint32, visit func(wire.UsedRow) error) error {
	calendar, err := s.calendar(ctx, namespace)
	if err != nil {
		return s.failed(ctx, "used", err)
	}
	for day := max(from, calendar.UsedDay(from)); day <= min(to, calendar.UsedDay(to)); day++ {
		if err := s.usedOn(ctx, namespace, day, visit); err != nil {
			return err
		}
	}
	return nil
}

// usedOn visits the labels of a day. HSCAN may return a label twice while others are added.
func (s *Store) usedOn(ctx context.Context, namespace string, day uint32, visit func(wire.UsedRow) error) error {
	visited := map[string]bool{}
	for cursor := uint64(0); ; {
		found, next, err := s.client.HScan(ctx, s.keys.used(namespace, day), cursor, "", usedPage).Result()
		if goredis.HasErrorPrefix(err, "WRONGTYPE") {
			return nil // another program has written the key
		}
		if err != nil {
			return s.failed(ctx, "used", err)
		}
		for ; len(found) > 1; found = found[2:] {
			label := found[0]
			hits, budget, _ := strings.Cut(found[1], " ")
			sum, err := strconv.ParseInt(hits, 10, 64)
			if _, ok := wire.DecodeUsedLabel([]byte(label)); !ok || err != nil || visited[label] {
				continue
			}
			visited[label] = true
			if err := visit(wire.UsedRow{Label: []byte(label), Day: day, Hits: sum, Budget: []byte(budget)}); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
