package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
)

// A hundred thousand keys, a million in a nightly run, do not grow Envoy's memory, and do not free
// a key that was at its limit.
func TestFlood(t *testing.T) {
	onEnvoyAlone(t, 1, newest, func(t *testing.T, d envoys) {
		const connections = 8
		requests := nightly.Or(1_000_000, 100_000) / rulesOfFlood
		warm := nightly.Or(100_000, 30_000) / rulesOfFlood
		clock := newClock()
		var rules []string
		for i := range rulesOfFlood {
			rules = append(rules, fmt.Sprintf(`{"name": "r%d", "key": [{"header": "x-%d"}], "limits": [{"limit": 5, "window": "1h"}]}`, i, i))
		}
		n := d.prepare(t, nodeConfig{clock: clock, configuration: `{"capacity": 10000, "headers": ["x-ratelimit"], "rules": [` + strings.Join(rules, ",") + `]}`})
		n.routes = []envoytest.Object{{"match": envoytest.Object{"prefix": "/"}, "direct_response": envoytest.Object{"status": 204}}}
		n.hcm = envoytest.Object{"access_log": []envoytest.Object{}}
		n.listen(t)
		one := client(t)
		ann := func(request int) int {
			headers := []string{"x-0", "ann"}
			for i := 1; i < rulesOfFlood; i++ {
				headers = append(headers, fmt.Sprint("x-", i), fmt.Sprint("beside ann ", request, i))
			}
			return ask(t, one, n.url(), headers...).status
		}
		for i := range 5 {
			must.EqualOrEnd(t, ann(i), http.StatusNoContent, "within the limit: status")
		}
		spray := func(from, to int) {
			t.Helper()
			var group sync.WaitGroup
			for c := range connections {
				group.Go(func() {
					must.Report(t, sprayFrom(t.Context(), n.url(), from+c, to, connections))
				})
			}
			group.Wait()
		}
		spray(0, warm)
		before := residentBytes(t, n.PID())
		spray(warm, requests)
		more := (residentBytes(t, n.PID()) - before) >> 10
		t.Logf("%d KiB more after %d keys than after %d", more, requests*rulesOfFlood, warm*rulesOfFlood)
		must.AtMost(t, more, 8<<10, "KiB more after %d keys than after %d", requests*rulesOfFlood, warm*rulesOfFlood)
		n.wantMetric(t, metricName("requests_total", "r0", "allowed"), int64(requests+5))
		clock.advance(t, 2*time.Second) // longer than the VMs remember refusals
		must.Equal(t, ann(5), http.StatusTooManyRequests, "a key that was at its limit: status after the flood")
	})
}

// rulesOfFlood is the number of rules, and so of keys, of a flood's request: a request for each key
// would take minutes.
const rulesOfFlood = 16

// sprayFrom sends the requests from, from+step … below to over one connection, each with new keys.
// All must pass.
func sprayFrom(ctx context.Context, url string, from, to, step int) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return err
	}
	var request []byte
	lines := bufio.NewReader(conn)
	for n := from; n < to && err == nil; n += step {
		request = append(request[:0], "GET / HTTP/1.1\r\nhost: shop.example\r\n"...)
		for i := range rulesOfFlood {
			request = fmt.Appendf(request, "x-%d: random-%d\r\n", i, n)
		}
		if _, err = conn.Write(append(request, "\r\n"...)); err == nil {
			err = passed(lines, n)
		}
	}
	return errors.Join(err, conn.Close())
}

// passed reads an answer without a body.
func passed(lines *bufio.Reader, request int) error {
	status, err := lines.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("request %d: %w", request, err)
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 204 ")) {
		return fmt.Errorf("request %d: got %s", request, status)
	}
	for {
		if line, err := lines.ReadSlice('\n'); err != nil || len(line) == 2 {
			return err
		}
	}
}
