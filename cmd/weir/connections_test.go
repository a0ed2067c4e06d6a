//go:build unix

package main

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// Whoever opens connections and sends half a header keeps neither probes nor nodes of his own address
// out, though the process has fewer files than he opens.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	command := exec.Command("sh", "-c", `ulimit -n 256; exec "$0" serve --listen 127.0.0.1:0`, os.Args[0])
	command.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(command.Process.Signal(syscall.SIGTERM), command.Wait()); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(stderr).ReadString('\n')
	found := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(line)
	if err != nil || found == nil {
		t.Fatalf("log, want an address: %s, %v", line, err)
	}
	for range 600 {
		c, err := net.Dial("tcp", found[1])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The first ones may be closed by now.
		_, _ = c.Write([]byte("POST /v1/push HTTP/1.1\r\nHost: "))
	}
	client := http.Client{Transport: &http.Transport{}, Timeout: 9 * time.Second}
	for range 3 {
		answer, err := client.Get("http://" + found[1] + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		client.CloseIdleConnections()
	}
}
