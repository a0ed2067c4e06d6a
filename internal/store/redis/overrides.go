package redis

import (
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
	//go:embed told.lua
	toldSource string

	overridesScript = goredis.NewScript(overridesSource)
	toldScript      = goredis.NewScript(toldSource)
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
	if err := store.CheckOverrides(namespace, list); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
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

// Heard implements [store.Store].
func (s *Store) Heard(ctx context.Context, namespace string, told store.Told) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := toldScript.Run(ctx, s.client, []string{s.keys.told(namespace)}, s.given(), store.HeardLife.Microseconds(), store.MaxNodes,
		fmt.Sprintf("%016x", told.Node), fmt.Sprintf("%d %d", told.Version, told.Unfit)).Err()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return s.failed(ctx, "heard", err)
	}
	return nil
}

// Told implements [store.Store].
func (s *Store) Told(ctx context.Context, namespace string) (all []store.Told, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found, err := toldScript.Run(ctx, s.client, []string{s.keys.told(namespace)}, s.given(), store.HeardLife.Microseconds()).StringSlice()
	if err != nil {
		return nil, s.failed(ctx, "told", err)
	}
	for ; len(found) > 1; found = found[2:] {
		var t store.Told
		var errNode error
		t.Node, errNode = strconv.ParseUint(found[0], 16, 64)
		if _, err := fmt.Sscanf(found[1], "%d %d", &t.Version, &t.Unfit); err == nil && errNode == nil {
			all = append(all, t)
		}
	}
	return all, nil
}
