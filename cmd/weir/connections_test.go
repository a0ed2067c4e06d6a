//go:build unix

package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"weir/internal/must"
)

// A client that opens connections and sends half a header blocks neither probes nor nodes at its
// own address, even if it opens more connections than the process may have files.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	b := startBounded(t, exec.Command("sh", "-c", `ulimit -n 256; exec "$0" serve --listen 127.0.0.1:0`, os.Args[0]), 1)
	address := b.addresses["the counter backend listens"]
	for range 600 {
		c := must.Get(net.Dial("tcp", address))(t)
		defer c.Close()
		// The first connections may be closed already.
		_, _ = c.Write([]byte("POST /v1/push HTTP/1.1\r\nHost: "))
	}
	client := http.Client{Transport: &http.Transport{}, Timeout: 9 * time.Second}
	for range 3 {
		answer := must.Get(client.Get("http://" + address + "/readyz"))(t)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		client.CloseIdleConnections()
	}
}
