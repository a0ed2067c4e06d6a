package redis

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store"
)

var (
	//go:embed overrides.lua
	overridesSource string
	//go:embed notes.lua
	notesSource string
	//go:embed nodes.lua
	nodesSource string

	overridesScript = goredis.NewScript(overridesSource)
	notesScript     = goredis.NewScript(notesSource)
	nodesScript     = goredis.NewScript(nodesSource)
)

// given returns the time in microseconds that replaces Redis's; empty if none does.
func (s *Store) given() string {
	if s.now == nil {
		return ""
	}
	return strconv.FormatInt(s.now().UnixMicro(), 10)
}

// failed wraps an error with the name of the call, and makes a cluster's client read again which
// server has which keys.
func (s *Store) failed(ctx context.Context, what string, err error) error {
	s.reload(ctx)
	return fmt.Errorf("redis: %s: %w", what, err)
}

// Overrides implements [store.Store].
func (s *Store) Overrides(ctx context.Context, namespace string, known uint64) (list []byte, version uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	found, err := overridesScript.Run(ctx, s.client, []string{s.keys.overrides(namespace)}, strconv.FormatUint(known, 10)).StringSlice()
	if err != nil || len(found) != 2 {
		return nil, 0, s.failed(ctx, "overrides", err)
	}
	if version, err = strconv.ParseUint(found[0], 10, 64); err != nil {
		return nil, 0, fmt.Errorf("redis: overrides: their version: %w", err)
	}
	return []byte(found[1]), version, nil
}

// SetOverrides implements [store.Store].
func (s *Store) SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (version uint64, err error) {
	if err := cmp.Or(store.CheckOverrides(namespace, list), ctx.Err()); err != nil {
		return 0, err
	}
	version, err = overridesScript.Run(ctx, s.client, []string{s.keys.overrides(namespace)}, strconv.FormatUint(from, 10), s.given(), list).Uint64()
	if errors.Is(err, goredis.Nil) {
		return 0, store.ErrChanged
	}
	if err != nil {
		return 0, s.failed(ctx, "set overrides", err)
	}
	return version, nil
}

// Note implements [store.Store].
func (s *Store) Note(ctx context.Context, topic store.Topic, namespace string, note store.Note) (nodes uint64, err error) {
	if err := cmp.Or(store.CheckNote(topic, namespace, note), ctx.Err()); err != nil {
		return 0, err
	}
	key, terms := s.keys.notes(topic, namespace), topic.Terms()
	if err := s.without(ctx, key); err != nil {
		return 0, fmt.Errorf("redis: %v: %w", topic, err)
	}
	args := []any{s.given(), terms.Life.Microseconds(), terms.Most, hexOf(note.Member)}
	if topic == store.Nodes {
		nodes, err = nodesScript.Run(ctx, s.client, []string{key}, append(args, terms.Newcomer.Microseconds(), !note.Asks)...).Uint64()
	} else {
		err = notesScript.Run(ctx, s.client, []string{key}, append(args, note.Body, terms.Log)...).Err()
	}
	if err != nil && !errors.Is(err, goredis.Nil) {
		return 0, s.failed(ctx, topic.String(), err)
	}
	return nodes, nil
}

// Notes implements [store.Store].
func (s *Store) Notes(ctx context.Context, topic store.Topic, namespace string) (all []store.Note, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found, err := notesScript.Run(ctx, s.client, []string{s.keys.notes(topic, namespace)}, s.given(), topic.Terms().Life.Microseconds()).StringSlice()
	if err != nil {
		return nil, s.failed(ctx, topic.String(), err)
	}
	for ; len(found) > 1; found = found[2:] {
		if member, err := strconv.ParseUint(found[0], 16, 64); err == nil { // else another program's
			all = append(all, store.Note{Member: member, Body: []byte(found[1])})
		}
	}
	return all, nil
}
