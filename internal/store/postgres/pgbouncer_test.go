package postgres_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/postgres/postgrestest"
)

// pooler starts PgBouncer before a database, with further lines of configuration, and returns the
// URL of the database behind it.
func pooler(t testing.TB, database string, lines ...string) string {
	t.Helper()
	to := must.Get(url.Parse(database))(t)
	address := commandtest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	dir := t.TempDir()
	file := filepath.Join(dir, "pgbouncer.ini")
	name := strings.TrimPrefix(to.Path, "/")
	password, _ := to.User.Password()
	text := fmt.Sprintf("[databases]\n%s = host=%s port=%s user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = transaction\n%s\n",
		name, to.Hostname(), to.Port(), to.User.Username(), password, port, strings.Join(lines, "\n"))
	must.OK(t, os.WriteFile(file, []byte(text), 0o644))
	command := osexec.Command("pgbouncer", file)
	if who, err := user.Current(); err == nil && who.Uid == "0" {
		// It does not run as root.
		for folder := dir; folder != os.TempDir() && len(folder) > 1; folder = filepath.Dir(folder) {
			must.OK(t, os.Chmod(folder, 0o755))
		}
		command = osexec.Command("pgbouncer", "-u", "nobody", file)
	}
	process := commandtest.Start(t, command)
	t.Cleanup(func() {
		if process.Kill(t); t.Failed() {
			t.Log(process.Printed())
		}
	})
	process.Wait(t, `(listening on) 127`)
	to.Host = address
	return to.String()
}

// Behind PgBouncer, in its mode of transactions, the store works with the documented parameter. Without
// it, the connections of the server have other prepared statements than the store supposes.
func TestPgBouncer(t *testing.T) {
	const parameter = "default_query_exec_mode=exec"
	page := must.Get(os.ReadFile("../../../docs/stores.md"))(t)
	must.Contains(t, string(page), "`"+parameter+"`", "docs/stores.md")
	database := postgrestest.Database(t)
	at := pooler(t, database)
	s := open(t, at+"&"+parameter, atEpoch)
	must.OK(t, s.Ping(t.Context()))
	var pushing sync.WaitGroup
	for sender := range uint64(16) {
		pushing.Go(func() {
			for sequence := uint64(1); sequence <= 20; sequence++ {
				_, err := s.Push(t.Context(), hit("ns", sender, sequence), 1)
				must.Report(t, err)
			}
		})
	}
	pushing.Wait()
	hits := int64(0)
	must.OK(t, s.Counters(t.Context(), "ns", &store.Wanted{Widths: []uint64{24 * 3_600_000}}, func(c store.LimitCounter) error {
		for _, w := range c.Line().Windows {
			hits += w.Hits
		}
		return nil
	}))
	must.Equal(t, hits, 320, "hits")
	err := open(t, at+"&"+parameter+"&synchronous_commit=off", atEpoch).Ping(t.Context())
	must.Contains(t, fmt.Sprint(err), "unsupported startup parameter", "settings of the server pass PgBouncer")
}
