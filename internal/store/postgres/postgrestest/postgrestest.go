// Package postgrestest runs a real PostgreSQL for tests.
package postgrestest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// Server is a PostgreSQL server of a test, on its own port of 127.0.0.1. It is not safe for
// concurrent use.
type Server struct {
	// Addr is host and port. They survive [Server.Restart].
	Addr string

	dir, programs string
	owner         *syscall.Credential
	settings      []string
	cmd           *exec.Cmd
	keep          io.Closer
	drained       chan error
	databases     int
}

// The superuser's password has characters that a URL must escape.
const (
	superuser = "weir"
	password  = "s3cret/:@"
)

// Start starts a server with an empty database, and returns when it answers. At the test's end the
// server is stopped and its data removed. Settings are like "max_connections=10". The server does
// not wait for disks: its data outlive [Server.Restart], but not the machine.
//
// PostgreSQL refuses to run as root, so for root it runs as the user nobody. The test fails if
// PostgreSQL is not installed.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := start(t, settings...)
	t.Cleanup(func() { must.Report(t, s.end()) })
	return s
}

// URL returns the address of the server's first database, including the password.
func (s *Server) URL() string { return s.url("postgres") }

func (s *Server) url(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, password), Host: s.Addr, Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Stop stops the server at once, like a crash. It does nothing if the server is stopped already.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	must.OK(t, s.stop())
	commandtest.Hold(t, s.Addr)
}

// Restart stops the server if it runs, and starts it at the same address with the same data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	must.OK(t, s.launch())
}

// Standby restarts the server read-only, like a standby without its primary. [Server.Promote] ends
// this state.
func (s *Server) Standby(t testing.TB) {
	t.Helper()
	s.Stop(t)
	must.OK(t, os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o600))
	if s.owner != nil {
		must.OK(t, os.Chown(filepath.Join(s.data(), "standby.signal"), int(s.owner.Uid), int(s.owner.Gid)))
	}
	s.Restart(t)
}

// Promote makes a standby writable.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	must.OK(t, s.exec("SELECT pg_promote()"))
}

// Database creates an empty database, and returns its URL.
func (s *Server) Database(t testing.TB) (url string) {
	t.Helper()
	s.databases++
	name := fmt.Sprintf("test%d", s.databases)
	must.OK(t, s.exec("CREATE DATABASE "+name))
	return s.url(name)
}

func (s *Server) exec(sql string) error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, sql)
	return errors.Join(err, c.Close(ctx))
}

// shared is the server of [Database].
var shared struct {
	sync.Mutex
	run    bool
	server *Server
}

// Main must be called by TestMain in packages whose tests use [Database]. It runs the tests, and
// returns the exit code.
func Main(m *testing.M) (code int) {
	shared.Lock()
	shared.run = true
	shared.Unlock()
	code = m.Run()
	if shared.server != nil {
		if err := shared.server.end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// Database creates an empty database in a server that a package's tests share, and returns its URL.
// The package's TestMain must call [Main]. Database is safe for concurrent use.
func Database(t testing.TB) (url string) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	must.EqualOrEnd(t, shared.run, true, "postgrestest.Database needs a TestMain that calls postgrestest.Main")
	if shared.server == nil {
		shared.server = start(t)
	}
	return shared.server.Database(t)
}

func start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{programs: find(t), owner: unprivileged(t), settings: settings}
	err := s.init()
	if err != nil {
		t.Fatal(errors.Join(err, s.end()))
	}
	// Another process may take the port between its choice and its use.
	for range 5 {
		if s.Addr, err = freeAddr(); err != nil {
			break
		}
		if err = s.launch(); err == nil {
			return s
		}
	}
	t.Fatal(errors.Join(err, s.end()))
	return nil
}

// find returns the directory of PostgreSQL's programs. Debian does not put them in the PATH.
func find(t testing.TB) string {
	t.Helper()
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range append(dirs, must.Get(filepath.Glob("/usr/lib/postgresql/*/bin"))(t)...) {
		_, errServer := exec.LookPath(filepath.Join(dir, "postgres"))
		_, errInit := exec.LookPath(filepath.Join(dir, "initdb"))
		if errServer == nil && errInit == nil {
			return dir
		}
	}
	t.Fatal("no postgres and initdb in the PATH or in /usr/lib/postgresql/*/bin; install them: apt-get install postgresql")
	return ""
}

// unprivileged returns the user nobody if this process runs as root, else nil.
func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	nobody := must.Get(user.Lookup("nobody"))(t)
	uid := must.Get(strconv.ParseUint(nobody.Uid, 10, 32))(t)
	gid := must.Get(strconv.ParseUint(nobody.Gid, 10, 32))(t)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *Server) init() (err error) {
	if s.dir, err = os.MkdirTemp("", "weir-postgres-"); err != nil {
		return err
	}
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	if s.owner != nil {
		for _, path := range []string{s.dir, secret} {
			if err := os.Chown(path, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
				return err
			}
		}
	}
	cmd := s.command(filepath.Join(s.programs, "initdb"), "--pgdata", s.data(), "--username", superuser, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, said)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	// launch and initdb read English messages, and variables for clients must not affect the
	// server.
	ofClients := func(variable string) bool { return strings.HasPrefix(variable, "PG") }
	cmd.Env = append(slices.DeleteFunc(os.Environ(), ofClients), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	return cmd
}

// launch starts the server, and returns when it answers.
func (s *Server) launch() error {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	args := []string{"-c", keeper, "sh", filepath.Join(s.programs, "postgres"), "-D", s.data(), "-h", host, "-p", port}
	for _, setting := range append([]string{"unix_socket_directories=", "fsync=off"}, s.settings...) {
		args = append(args, "-c", setting)
	}
	cmd := s.command("sh", args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	keep, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	s.cmd, s.keep, s.drained = cmd, keep, make(chan error, 1)
	var said strings.Builder
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if strings.Contains(line, "ready to accept ") { // connections, or read-only connections
			go func() {
				_, err := io.Copy(io.Discard, lines)
				s.drained <- err
			}()
			return nil
		}
		if err != nil {
			s.drained <- nil
			return errors.Join(fmt.Errorf("postgres does not start:\n%s", &said), s.stop())
		}
	}
}

// keeper is a shell that shuts the server down when its input ends: the test closes it, or the
// test's process has died. SIGQUIT is an immediate shutdown: all processes exit at once, and the
// next start recovers from the log. After SIGKILL some processes would live for a while and use the
// data.
const keeper = `"$@" & exec 2>/dev/null; read -r _; kill -QUIT $!; wait $!`

func (s *Server) stop() error {
	if s.cmd == nil {
		return nil
	}
	cmd := s.cmd
	s.cmd = nil
	if err := s.keep.Close(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if err := <-s.drained; err != nil {
		return fmt.Errorf("postgres: its log: %w", err)
	}
	// The server's exit code is no failure.
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// end stops the server and removes its data.
func (s *Server) end() error { return errors.Join(s.stop(), os.RemoveAll(s.dir)) }

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
