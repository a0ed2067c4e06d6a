package scripts_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"weir/internal/must"
)

// A user who can't install packages is told which are missing, and how root gets them.
func TestDependenciesWithoutRoot(t *testing.T) {
	dir := t.TempDir()
	// Another user gets there too.
	must.OK(t, os.Chmod(filepath.Dir(dir), 0o755))
	script := must.Get(os.ReadFile("test-dependencies"))(t)
	tools := filepath.Join(dir, "tools")
	for name, content := range map[string]string{
		filepath.Join(dir, "scripts", "test-dependencies"): string(script),
		filepath.Join(tools, "apt-get"):                    "#!/bin/sh\necho apt-get runs\n",
	} {
		must.OK(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.OK(t, os.WriteFile(name, []byte(content), 0o755))
	}
	for _, name := range []string{"dirname", "id"} {
		path := must.Get(exec.LookPath(name))(t)
		must.OK(t, os.Symlink(path, filepath.Join(tools, name)))
	}
	command := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(dir, "scripts", "test-dependencies"))
	command.Dir, command.Env = dir, []string{"PATH=" + tools}
	if os.Geteuid() == 0 {
		const nobody = 65534
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, want exit status 1", err)
	}
	missing := regexp.MustCompile(`^make test needs, and installs:( redis-server .*)\n$`).FindStringSubmatch(stdout.String())
	if missing == nil || !strings.Contains(stderr.String(), "there is no sudo. Have root run\n    apt-get install --no-install-recommends"+missing[1]+"\n") {
		t.Errorf("printed %s%s", &stdout, &stderr)
	}
}
