package redis

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// replicaTimeout is how long a push waits for replicas to have it, if the URL does not say. Nodes
	// wait for 200 ms, if they are not told otherwise.
	replicaTimeout = 100 * time.Millisecond
	longestWait    = 4 * time.Second
)

// acks are the commands whose last answer was followed, on the same connection, by that of enough
// replicas.
type acks struct {
	mu   sync.Mutex
	cmds map[goredis.Cmder]bool
}

type acksKey struct{}

func (a *acks) set(cmds []goredis.Cmder, replicated bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cmds == nil {
		a.cmds = make(map[goredis.Cmder]bool)
	}
	for _, cmd := range cmds {
		a.cmds[cmd] = replicated
	}
}

func (a *acks) has(cmd goredis.Cmder) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cmds[cmd]
}

// waitHook appends WAIT to pipelines that have acks in their context. A cluster's client divides a
// pipeline among the servers, and again if there are redirections. Only a hook of each server's
// client sees what goes over one connection.
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
				// It is of a try that failed: all of its commands are tried again.
			default:
				sent = append(sent, cmd)
			}
		}
		switch {
		case len(sent) == 0:
			return nil
		case len(scripts) == 0: // what begins a connection
			return next(ctx, sent)
		}
		timeout := h.timeout
		if until, bounded := ctx.Deadline(); bounded {
			timeout = min(timeout, time.Until(until)*3/4) // so that its answer is there in time
		}
		wait := goredis.NewIntCmd(ctx, "wait", h.replicas, max(1, timeout.Milliseconds())) // 0 is for ever
		acks.set(scripts, false)
		err := next(ctx, append(sent, wait))
		acks.set(scripts, wait.Err() == nil && wait.Val() >= int64(h.replicas))
		return err
	}
}
