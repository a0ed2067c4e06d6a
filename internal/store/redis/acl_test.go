package redis_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/advancetest"
	"weir/internal/store/redis/redistest"
	"weir/internal/store/storetest"
)

// documentedUser returns the arguments of the documented ACL SETUSER.
func documentedUser(t testing.TB) []any {
	t.Helper()
	page := must.Get(os.ReadFile("../../../docs/stores.md"))(t)
	lines := regexp.MustCompile(`(?s)\n    ACL SETUSER weir (.*?)\n\n`).FindSubmatch(page)
	must.EqualOrEnd(t, lines != nil, true, "docs/stores.md has ACL SETUSER weir")
	args := []any{"ACL", "SETUSER", "weir"}
	for _, word := range strings.Fields(strings.ReplaceAll(string(lines[1]), "\\\n", " ")) {
		args = append(args, word)
	}
	return args
}

// used are the commands that a server has got, without those that each connection begins with.
func used(ctx context.Context, t testing.TB, admin *goredis.Client) (commands []string) {
	t.Helper()
	info := must.Get(admin.Info(ctx, "commandstats").Result())(t)
	for _, match := range regexp.MustCompile(`cmdstat_([^:]+):`).FindAllStringSubmatch(info, -1) {
		if !slices.Contains([]string{"auth", "hello", "acl|setuser", "acl|log"}, match[1]) {
			commands = append(commands, match[1])
		}
	}
	return commands
}

// With the documented user everything works, and no right that it has is unused. Its keys are those
// of Weir.
func TestDocumentedUser(t *testing.T) {
	granted := documentedUser(t)
	var mu sync.Mutex
	needed := map[string]bool{}
	open := func(t testing.TB, now func() time.Time) store.Store {
		server := redistest.Start(t)
		admin := goredis.NewClient(&goredis.Options{Addr: server.Addr})
		must.OK(t, admin.Do(t.Context(), granted...).Err())
		t.Cleanup(func() {
			ctx := context.Background()
			must.Same(t, must.Get(admin.ACLLog(ctx, 10).Result())(t), nil, "denied")
			mu.Lock()
			defer mu.Unlock()
			for _, command := range used(ctx, t, admin) {
				needed[command] = true
			}
			must.Report(t, admin.Close())
		})
		u := url.URL{Scheme: "redis", Host: server.Addr, User: url.UserPassword("weir", "PASSWORD")}
		counters := open(t, u.String(), now)
		if policy, err := counters.Evicts(t.Context()); policy != "" || err != nil {
			t.Errorf("it evicts: %q, %v", policy, err)
		}
		return counters
	}
	storetest.Run(t, open)
	advancetest.FarAgain(advancetest.NewFleet(t, func(t *testing.T, now func() time.Time) (store.Store, func() int) {
		return open(t, now), nil
	}).Begin(), func() {})
	for _, right := range granted {
		if command, is := strings.CutPrefix(right.(string), "+"); is && !needed[command] {
			t.Errorf("the right to %s is not needed", command)
		}
	}
	// Some scripts' calls are rare.
	scripts := must.Get(filepath.Glob("*.lua"))(t)
	must.EqualOrEnd(t, len(scripts) > 0, true, "there are scripts")
	for _, script := range scripts {
		source := must.Get(os.ReadFile(script))(t)
		for _, match := range regexp.MustCompile(`redis\.p?call\('(\w+)'`).FindAllSubmatch(source, -1) {
			if right := "+" + strings.ToLower(string(match[1])); !slices.Contains(granted, any(right)) {
				t.Errorf("%s needs %s", script, right)
			}
		}
	}
}

// On a cluster, and with replicas that must have each write, the user needs the further rights that are
// documented.
func TestDocumentedUserOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	granted := append(documentedUser(t), documentedRights(t)...)
	admins := make([]*goredis.Client, 0, 6)
	for i := range 6 {
		admin := cluster.Client(i)
		must.OK(t, admin.Do(t.Context(), granted...).Err())
		admins = append(admins, admin)
	}
	counters := open(t, strings.Replace(cluster.URL(), "://", "://weir:PASSWORD@", 1)+"?wait_replicas=1&wait_timeout=2s", nil)
	must.Report(t, counters.Ping(t.Context()))
	if policy, err := counters.Evicts(t.Context()); policy != "" || err != nil {
		t.Errorf("it evicts: %q, %v", policy, err)
	}
	must.Report(t, counters.Counters(t.Context(), "ns", nil, func(store.LimitCounter) error { return nil }))
	for _, admin := range admins {
		must.Same(t, must.Get(admin.ACLLog(t.Context(), 10).Result())(t), nil, "denied")
	}
}

// documentedRights returns the further rights for a cluster and for replicas.
func documentedRights(t testing.TB) (rights []any) {
	t.Helper()
	page := must.Get(os.ReadFile("../../../docs/stores.md"))(t)
	line := regexp.MustCompile(`\nWith .wait_replicas. and on a cluster it also needs ([^.]+)\.`).FindSubmatch(page)
	must.EqualOrEnd(t, line != nil, true, "docs/stores.md has rights for a cluster")
	for _, right := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(line[1], -1) {
		rights = append(rights, string(right[1]))
	}
	return rights
}
