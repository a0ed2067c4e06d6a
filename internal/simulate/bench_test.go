package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"weir/internal/must"
)

const benchRules = `{"rules": [
	{"name": "per-user", "key": ["client_ip"], "limits": [{"limit": 100, "window": "1m"}, {"limit": 20, "window": "1s", "algorithm": "sliding_log"}]},
	{"name": "login", "match": {"path": {"exact": "/login"}, "methods": ["POST"]}, "key": ["client_ip"], "limits": [{"limit": 5, "window": "1m"}]},
	{"name": "all", "limits": [{"limit": 5000, "window": "1m"}]}
]}`

// million writes a million lines of 20,000 clients, of whom a few ask most.
func million(b *testing.B, line string) (file string) {
	file = filepath.Join(b.TempDir(), "access.log")
	f := must.Get(os.Create(file))(b)
	out := bufio.NewWriter(f)
	random := rand.New(rand.NewPCG(7, 7))
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for i := range 1_000_000 {
		at = at.Add(time.Duration(random.ExpFloat64() * float64(20*time.Millisecond)))
		who := int(math.Pow(1-random.Float64(), -1/0.6)) % 20_000
		method, path := "GET", "/"
		if i%8 == 0 {
			method, path = "POST", "/login"
		}
		stamp := at.Format("2006-01-02T15:04:05.000Z")
		if line == combinedLine {
			stamp = at.Format("02/Jan/2006:15:04:05 -0700")
		}
		fmt.Fprintf(out, line, stamp, method, path, fmt.Sprintf("10.1.%d.%d", who>>8, who&255))
	}
	must.OK(b, errors.Join(out.Flush(), f.Close()))
	return file
}

const (
	envoyLine    = `[%[1]s] "%[2]s %[3]s HTTP/1.1" 200 - 0 135 3 2 "%[4]s" "Mozilla/5.0 (X11; Linux x86_64)" "3e1a6a3c-7d12-4c6e-9a4c-001122334455" "shop.example" "10.0.0.7:8080"` + "\n"
	combinedLine = `%[4]s - - [%[1]s] "%[2]s %[3]s HTTP/1.1" 200 612 "-" "Mozilla/5.0 (X11; Linux x86_64)"` + "\n"
	istioLine    = `{"bytes_received":0,"upstream_cluster":"outbound|8000||shop.default.svc.cluster.local","downstream_remote_address":"%[4]s:46520","authority":"shop.example","path":"%[3]s","protocol":"HTTP/1.1","upstream_service_time":"4","upstream_local_address":"10.44.1.23:37652","duration":4,"upstream_transport_failure_reason":null,"route_name":"default","downstream_local_address":"10.0.45.184:8000","user_agent":"Mozilla/5.0 (X11; Linux x86_64)","response_code":200,"response_flags":"-","response_code_details":"via_upstream","start_time":"%[1]s","method":"%[2]s","request_id":"84961386-6d84-929d-98bd-c5aee93b5c88","upstream_host":"10.44.1.27:80","x_forwarded_for":null,"requested_server_name":null,"bytes_sent":135,"connection_termination_details":null}` + "\n"
)

// BenchmarkMillionLines simulates three rules with four limits, on each of them 25 other limits and
// two searches.
func BenchmarkMillionLines(b *testing.B) {
	for name, line := range map[string]string{"envoy": envoyLine, "combined": combinedLine, "istio-json": istioLine} {
		b.Run(name, func(b *testing.B) {
			name := million(b, line)
			runtime.GC()
			before := inUse()
			for b.Loop() {
				log := must.Get(os.Open(name))(b)
				defer func() { _ = log.Close() }()
				most := uint64(0)
				must.EqualOrEnd(b, must.Get(Run(b.Context(), &Options{
					Configuration: []byte(benchRules), Logs: []Log{{"log", log}}, Worst: 10,
					Progress: func(int64) { most = max(most, inUse()) },
				}))(b).Requests, 1_000_000, "")
				b.ReportMetric(float64(max(most, inUse())-before)/(1<<20), "MiB")
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/million")
		})
	}
}

// inUse is the memory of objects, those among them that the collector has yet to find.
func inUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
