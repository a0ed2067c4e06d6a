package page

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"weir/internal/must"
)

// startTimeout is longer than a server takes to be ready.
const startTimeout = 30 * time.Second

// Start starts a server, which ends with t. It returns the number of its process when a URL
// answers.
func Start(t testing.TB, ready string, environment []string, command ...string) (pid int) {
	t.Helper()
	cmd, log, exited := exec.Command(command[0], command[1:]...), &bytes.Buffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), environment...)
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", command[0], err)
	}
	go func() {
		_ = cmd.Wait() // the process was killed
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // unless it has ended
		<-exited
	})
	client := &http.Client{Timeout: time.Second}
	for until := time.After(startTimeout); ; {
		if answer, err := client.Get(ready); err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK {
			return cmd.Process.Pid
		}
		select {
		case <-exited:
			t.Fatalf("%s does not start: %s\n%s", command[0], cmd.ProcessState, log)
		case <-until:
			t.Fatalf("%s does not start", command[0])
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// FreeAddresses returns different addresses of this machine that nobody listens at.
func FreeAddresses(t testing.TB, n int) (addresses []string) {
	t.Helper()
	for range n {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer func() { _ = l.Close() }() // only after all are found
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}
