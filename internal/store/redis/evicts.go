package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store"
)

var _ store.Evictor = (*Store)(nil)

// Evicts implements [store.Evictor]. It uses INFO, because more servers allow it than CONFIG. It
// asks all servers of a cluster, since a replica may take over, and ignores unreachable servers.
func (s *Store) Evicts(ctx context.Context) (policy string, err error) {
	servers, err := s.servers(ctx, true)
	if err != nil {
		return "", fmt.Errorf("redis: %w", err)
	}
	var policies []string
	answered := 0
	var silent, away error
	for _, server := range servers {
		found, err := evictionPolicy(ctx, server)
		switch {
		case errors.Is(err, store.ErrUntold):
			silent = err
		case err != nil:
			away = err
		default:
			if answered++; found != "noeviction" {
				policies = append(policies, found)
			}
		}
	}
	if len(policies) > 0 {
		slices.Sort(policies)
		return strings.Join(slices.Compact(policies), ", "), nil
	}
	if silent == nil && answered == 0 {
		silent = away
	}
	if silent != nil {
		return "", fmt.Errorf("redis: %w", silent)
	}
	return "", nil
}

// evictionPolicy returns a server's maxmemory-policy.
func evictionPolicy(ctx context.Context, server *goredis.Client) (string, error) {
	info, err := server.Info(ctx, "memory").Result()
	if reply := goredis.Error(nil); errors.As(err, &reply) {
		return "", fmt.Errorf("%w: INFO memory: %w", store.ErrUntold, err)
	}
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if policy, ok := strings.CutPrefix(line, "maxmemory_policy:"); ok {
			return strings.TrimSpace(policy), nil
		}
	}
	return "", fmt.Errorf("%w: INFO memory has no maxmemory_policy", store.ErrUntold)
}
