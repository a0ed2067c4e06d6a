package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// replicaTimeout is the default of wait_timeout. Nodes wait 200 ms for an answer by default.
	replicaTimeout = 100 * time.Millisecond
	longestWait    = 4 * time.Second
)

// acks has the commands that a WAIT followed on the same connection, and why it is not known that enough
// replicas have them; nil if they do.
type acks struct {
	mu   sync.Mutex
	cmds map[goredis.Cmder]error
}

type acksKey struct{}

// errNoWait is of commands that no WAIT has followed.
var errNoWait = errors.New("no WAIT has told which replicas have it")

func (a *acks) set(cmds []goredis.Cmder, lacks error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cmds == nil {
		a.cmds = make(map[goredis.Cmder]error)
	}
	for _, cmd := range cmds {
		a.cmds[cmd] = lacks
	}
}

func (a *acks) lacks(cmd goredis.Cmder) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if lacks, told := a.cmds[cmd]; told {
		return lacks
	}
	return errNoWait
}

// waitHook appends WAIT to pipelines with acks in their context. A cluster's client divides a
// pipeline among the servers, and again after redirections. Only a hook of each server's client
// sees the commands of one connection.
type waitHook struct {
	replicas int
	timeout  time.Duration
}

var _ goredis.Hook = waitHook{}

// DialHook implements [goredis.Hook].
func (waitHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements [goredis.Hook].
func (waitHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements [goredis.Hook].
func (h waitHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		acks, wanted := ctx.Value(acksKey{}).(*acks)
		if !wanted || h.replicas == 0 {
			return next(ctx, cmds)
		}
		var scripts, sent []goredis.Cmder
		for _, cmd := range cmds {
			switch cmd.Name() {
			case "evalsha", "eval":
				scripts, sent = append(scripts, cmd), append(sent, cmd)
			case "wait":
				// It belongs to a failed attempt, all of whose commands are sent again.
			default:
				sent = append(sent, cmd)
			}
		}
		switch {
		case len(sent) == 0:
			return nil
		case len(scripts) == 0: // the commands that begin a connection
			return next(ctx, sent)
		}
		timeout := h.timeout
		if until, bounded := ctx.Deadline(); bounded {
			timeout = min(timeout, time.Until(until)*3/4) // so that the answer comes in time
		}
		wait := goredis.NewIntCmd(ctx, "wait", h.replicas, max(1, timeout.Milliseconds())) // 0 is for ever
		acks.set(scripts, errNoWait)
		err := next(ctx, append(sent, wait))
		acks.set(scripts, h.lacks(wait, timeout))
		return err
	}
}

// lacks returns why a WAIT with this timeout does not say that enough replicas have what came before.
func (h waitHook) lacks(wait *goredis.IntCmd, timeout time.Duration) error {
	n, err := wait.Result()
	switch {
	case err == nil && n >= int64(h.replicas):
		return nil
	case err == nil:
		err = fmt.Errorf("it did not reach %d replicas within %v", h.replicas, h.timeout)
	case !late(err): // the server has refused to wait
		return fmt.Errorf("whether it reached %d replicas is not known: %w", h.replicas, err)
	default:
		err = fmt.Errorf("whether it reached %d replicas was not told within %v: %w", h.replicas, h.timeout, err)
	}
	if timeout < min(leastPatience, h.timeout)*3/4 {
		return hurried{err}
	}
	return err
}
