package accesslog

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/encoding/unicode"

	"weir/internal/must"
)

// Lines as the documentation of their writers has them, with what they tell.
var samples = []struct {
	name, format, line string
	time               string
	parts              string // part=value, separated by " | "; an absent one has no =
}{
	{
		"Envoy's own example", "envoy",
		`[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"`,
		"2016-04-15T20:17:00.31Z",
		`header :method=POST | header :path=/api/v1/locations | header :authority=locations | header user-agent=nsq2http | property source.address=10.0.35.28`,
	},
	{
		"Envoy, nobody forwarded", "envoy",
		`[2026-01-02T15:04:05.678Z] "GET /?a="b"&c HTTP/1.1" 429 RL 0 0 1 - "-" "curl/8.5.0" "-" "shop.example" "-"`,
		"2026-01-02T15:04:05.678Z", `header :path=/?a="b"&c | header x-request-id | header user-agent=curl/8.5.0`,
	},
	{
		"Istio's own example", "istio",
		`[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local 10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 - default`,
		"2020-11-25T21:26:18.409Z", `header :path=/status/418 | header :authority=httpbin:8000 | property source.address=10.44.1.23:46520`,
	},
	{
		"Istio's JSON", "json",
		`{"bytes_received":0,"upstream_cluster":"outbound|8000||httpbin.foo.svc.cluster.local","downstream_remote_address":"10.44.1.23:46520","authority":"httpbin:8000","path":"/status/418","protocol":"HTTP/1.1","upstream_service_time":"4","upstream_local_address":"10.44.1.23:37652","duration":4,"upstream_transport_failure_reason":null,"route_name":"default","downstream_local_address":"10.0.45.184:8000","user_agent":"curl/7.73.0-DEV","response_code":418,"response_flags":"-","response_code_details":"via_upstream","start_time":"2020-11-25T21:26:18.409Z","method":"GET","request_id":"84961386","upstream_host":"10.44.1.27:80","x_forwarded_for":null,"requested_server_name":null,"bytes_sent":135,"connection_termination_details":null,"x_user":"ann"}`,
		"2020-11-25T21:26:18.409Z", `header :method=GET | header :path=/status/418 | property source.address=10.44.1.23:46520 | header x-forwarded-for | header x-user=ann | property route_name=default`,
	},
	{
		"Envoy Gateway's JSON", "json",
		`{":authority":"www.example.com","bytes_received":0,"bytes_sent":509,"connection_termination_details":null,"downstream_local_address":"10.244.0.9:10080","downstream_remote_address":"10.244.0.1:59102","duration":1,"method":"GET","protocol":"HTTP/1.1","requested_server_name":null,"response_code":200,"response_code_details":"via_upstream","response_flags":"-","route_name":"httproute/default/backend/rule/0/match/0/www_example_com","start_time":"2026-01-02T15:04:05.678Z","upstream_cluster":"httproute/default/backend/rule/0","upstream_host":"10.244.0.8:3000","upstream_local_address":"10.244.0.9:51020","upstream_transport_failure_reason":null,"user-agent":"curl/8.5.0","x-envoy-origin-path":"/get","x-envoy-upstream-service-time":null,"x-forwarded-for":"10.244.0.1","x-request-id":"5e2e5b9c"}`,
		"2026-01-02T15:04:05.678Z", `header :authority=www.example.com | header :path=/get | header user-agent=curl/8.5.0 | property source.address=10.244.0.1:59102 | header x-request-id=5e2e5b9c`,
	},
	{
		"nginx's variables as JSON, in objects, with seconds", "json",
		`{"msec":"1767366245.678","remote_addr":"192.0.2.7","request":"GET /a%20b?c HTTP/1.1","http_x_user":"j\u00f6rg \"<b>\"","sent_http_x_tokens":"12","http":{"version":1.1},"n":12345678901234567890}`,
		"2026-01-02T15:04:05.678Z", `header :path=/a%20b?c | header x-user=jörg "<b>" | response header x-tokens=12 | property source.address=192.0.2.7 | header n=12345678901234567890`,
	},
	{
		"common, as Apache's documentation has it", "common",
		`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
		"2000-10-10T20:55:36Z", `header :method=GET | header :path=/apache_pb.gif | property source.address=127.0.0.1`,
	},
	{
		"combined, escaped", "combined",
		`2001:db8::1 - - [02/Jan/2026:15:04:05 +0000] "GET /\x22><script>alert(1)</script>\x01 HTTP/1.1" 404 153 "-" "a \"b\" \\ c"`,
		"2026-01-02T15:04:05Z", "header :path=/\"><script>alert(1)</script>\x01 | header user-agent=a \"b\" \\ c | header referer | property source.address=2001:db8::1",
	},
	{
		"combined, with what nginx.conf has behind it, to a proxy", "combined",
		`10.0.0.1 - - [02/Jan/2026:15:04:05 +0000] "GET http://shop.example/x?y HTTP/1.1" 200 1 "-" "-" "192.0.2.1, 192.0.2.2" 0.004`,
		"2026-01-02T15:04:05Z", "header :path=/x?y | header :authority=shop.example | header x-forwarded-for=192.0.2.1, 192.0.2.2 | property source.address=10.0.0.1",
	},
	{
		"Envoy, a CONNECT", "envoy",
		`[2026-01-02T15:04:05.678Z] "CONNECT - HTTP/2" 200 - 0 0 1 - "-" "curl/8.5.0" "-" "shop.example" "-"`,
		"2026-01-02T15:04:05.678Z", `header :method=CONNECT | header :path | header :authority=shop.example`,
	},
	{
		"Envoy's JSON, a CONNECT", "json", `{"start_time":"2026-01-02T15:04:05.678Z","method":"CONNECT","path":null,"authority":"shop.example:443"}`,
		"2026-01-02T15:04:05.678Z", `header :method=CONNECT | header :path | header :authority=shop.example:443`,
	},
	{
		"Caddy", "caddy",
		`{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"41342","client_ip":"192.0.2.1","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b=c","headers":{"User-Agent":["curl/7.82.0"],"Accept-Encoding":["gzip","br"],"X-User":["ann"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"X-Tokens":["12"]}}`,
		"2022-03-09T21:30:01.523172725Z",
		`header :method=GET | header :path=/a?b=c | header :authority=localhost | header user-agent=curl/7.82.0 | header accept-encoding=gzip,br | header x-user=ann | response header :status=200 | response header x-tokens=12 | property source.address=192.0.2.1 | property request.duration=929675`,
	},
	{
		"Traefik", "traefik",
		`{"ClientAddr":"10.42.0.1:53512","ClientHost":"10.42.0.1","ClientPort":"53512","ClientUsername":"-","DownstreamContentSize":12,"DownstreamStatus":429,"Duration":1578312,"OriginDuration":0,"OriginStatus":0,"Overhead":1578312,"RequestAddr":"shop.example:8443","RequestContentSize":0,"RequestCount":7,"RequestHost":"shop.example","RequestMethod":"POST","RequestPath":"/a?b","RequestPort":"8443","RequestProtocol":"HTTP/2.0","RequestScheme":"https","RetryAttempts":0,"RouterName":"shop@file","StartLocal":"2026-01-02T16:04:05.678901234+01:00","StartUTC":"2026-01-02T15:04:05.678901234Z","downstream_X-Tokens":"12","entryPointName":"websecure","level":"info","msg":"","request_User-Agent":"curl/8.5.0","request_X-User":"ann","time":"2026-01-02T16:04:06+01:00"}`,
		"2026-01-02T15:04:05.678901234Z",
		`header :method=POST | header :path=/a?b | header :authority=shop.example:8443 | header user-agent=curl/8.5.0 | header x-user=ann | response header :status=429 | response header x-tokens=12 | property source.address=10.42.0.1:53512 | header x-forwarded-for | property request.duration=1578312`,
	},
	{
		"a load balancer of Google Cloud", "gcp",
		`{"httpRequest":{"latency":"0.123400s","protocol":"HTTP/1.1","referer":"https://shop.example/","remoteIp":"192.0.2.7","requestMethod":"GET","requestSize":"77","requestUrl":"https://shop.example/a?b","responseSize":"180","serverIp":"10.0.0.1","status":200,"userAgent":"curl/8.5.0"},"insertId":"1x","jsonPayload":{"@type":"type.googleapis.com/google.cloud.loadbalancing.type.LoadBalancerLogEntry","statusDetails":"response_sent_by_backend"},"logName":"projects/p/logs/requests","receiveTimestamp":"2026-01-02T15:04:07Z","resource":{"labels":{"zone":"global"},"type":"http_load_balancer"},"severity":"INFO","timestamp":"2026-01-02T15:04:05.678901Z"}`,
		"2026-01-02T15:04:05.678901Z",
		`header :method=GET | header :path=/a?b | header :authority=shop.example | header user-agent=curl/8.5.0 | header referer=https://shop.example/ | response header :status=200 | property source.address=192.0.2.7 | property request.duration=123400000`,
	},
	{
		"a load balancer of Amazon's, by its documentation", "alb",
		`https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_123456`,
		"2018-07-02T22:22:48.364Z",
		`header :method=GET | header :path=/a?b | header :authority=www.example.com | header user-agent=curl/7.46.0 | response header :status=200 | property source.address=192.168.131.39:2817 | property request.duration=11822641000`,
	},
	{
		"CloudFront, by its documentation, without the lines before", "cloudfront",
		strings.ReplaceAll(`2019-12-04 21:02:31 LAX1 392 192.0.2.100 GET d111111abcdef8.cloudfront.net /index.html 200 - Mozilla/5.0%20(Windows%20NT%2010.0) a=b%20c - Hit SOX4xwn4XV6Q4rgb7XiVGOHms_BGlTAC4KyHmureZmBNrjGdRLiNIQ== shop.example https 23 0.001 - TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256 Hit HTTP/2.0 - - 11040 0.001 Hit text/html 78 - -`, " ", "\t"),
		"2019-12-04T21:02:30.999Z",
		`header :method=GET | header :path=/index.html?a=b%20c | header :authority=shop.example | header user-agent=Mozilla/5.0 (Windows NT 10.0) | header referer | header cookie | response header :status=200 | property source.address=192.0.2.100 | property request.duration=1000000`,
	},
	{
		"nginx's variables as JSON, with a path that try_files has changed", "json",
		`{"ts":"2026-01-02T15:04:05+00:00","uri":"/index.php","request":"GET /a?b HTTP/1.1","remote_addr":"192.0.2.7"}`,
		"2026-01-02T15:04:05Z", `header :method=GET | header :path=/a?b`,
	},
	{
		"the same, and no request line", "json",
		`{"ts":"2026-01-02T15:04:05+00:00","uri":"/index.php","request_uri":"/a?b","request_method":"GET"}`,
		"2026-01-02T15:04:05Z", `header :method=GET | header :path=/a?b`,
	},
	{
		"JSON whose request is no request line", "json", `{"time":"2026-01-02T15:04:05Z","request":"cc21d9b0","uri":"/a"}`,
		"2026-01-02T15:04:05Z", `header :path=/a`,
	},
	{
		"Traefik behind a proxy, whose X-Forwarded-For takes the place of the host", "traefik",
		`{"ClientAddr":"10.42.0.1:53512","ClientHost":"192.0.2.1, 192.0.2.2","ClientPort":"53512","RequestMethod":"GET","RequestPath":"/","StartUTC":"2026-01-02T15:04:05.5Z"}`,
		"2026-01-02T15:04:05.5Z", `property source.address=10.42.0.1:53512 | header x-forwarded-for=192.0.2.1, 192.0.2.2`,
	},
	{
		"Envoy, behind a proxy that tells no address", "envoy",
		`[2026-01-02T15:04:05.678Z] "GET / HTTP/1.1" 200 - 0 0 1 - "unknown, 192.0.2.1" "curl/8.5.0" "-" "shop.example" "-"`,
		"2026-01-02T15:04:05.678Z", `header x-forwarded-for=unknown, 192.0.2.1 | property source.address=192.0.2.1`,
	},
	{
		"Istio, by IPv6", "istio",
		`[2020-11-25T21:26:18.409Z] "GET / HTTP/1.1" 200 - via_upstream - "-" 0 135 4 4 "-" "curl/8.5.0" "84961386" "httpbin:8000" "[fd00::7]:80" outbound|8000||httpbin.foo.svc.cluster.local [fd00::6]:37652 [fd00::5]:8000 [2001:db8::1]:46520 - default`,
		"2020-11-25T21:26:18.409Z", `header :path=/ | property source.address=[2001:db8::1]:46520`,
	},
	{
		"Apache on Debian, of virtual hosts", "vhost_combined",
		`www.example.com:443 192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08"`,
		"2000-10-10T20:55:36Z", `header :authority=www.example.com | header :path=/a?b | response header :status=200 | header user-agent=Mozilla/4.08 | property source.address=192.0.2.7`,
	},
	{
		"Apache, a CONNECT", "common", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "CONNECT shop.example:443 HTTP/1.1" 200 2326`,
		"2000-10-10T20:55:36Z", `header :method=CONNECT | header :path | header :authority=shop.example:443`,
	},
	{
		"nginx's uri and args", "json", `{"msec":"1767366245.678","remote_addr":"192.0.2.7","request_method":"GET","args":"a=b","uri":"/index.php"}`,
		"2026-01-02T15:04:05.678Z", `header :path=/index.php?a=b`,
	},
	{
		"nginx's request_uri, uri and args", "json", `{"msec":"1767366245.678","request_uri":"/old?a=b","request_method":"GET","args":"c=d","uri":"/index.php"}`,
		"2026-01-02T15:04:05.678Z", `header :path=/old?a=b`,
	},
	{
		"a path beside a request of another kind", "json", `{"msec":"1767366245.678","request_method":"GET","request":"/internal/42","response":"0.123","status":200,"query_string":"?a=b","path":"/a"}`,
		"2026-01-02T15:04:05.678Z", `header :path=/a?a=b | response header :status=200`,
	},
	{
		"Logstash's COMBINEDAPACHELOG", "json",
		`{"@timestamp":"2026-01-02T15:04:05.678Z","clientip":"192.0.2.7","verb":"GET","request":"/a?b","httpversion":"1.1","response":"200","agent":"\"curl/8.5.0\""}`,
		"2026-01-02T15:04:05.678Z", `header :method=GET | header :path=/a?b | response header :status=200 | header user-agent="curl/8.5.0" | property source.address=192.0.2.7`,
	},
}

// Lines about what was no request, as their writers write them.
func TestNoRequest(t *testing.T) {
	for line, format := range map[string]string{
		`[2026-11-27T09:00:01.310Z] "- - HTTP/1.1" 400 DPE 0 11 0 - "-" "-" "-" "-" "-"`:                                                                                                                                                  "envoy",
		`[2026-11-27T09:00:01.310Z] "- - -" 0 DC 0 0 0 - "-" "-" "-" "-" "-"`:                                                                                                                                                             "envoy",
		`[2026-11-27T09:00:01.310Z] "GET - HTTP/1.1" 400 DPE 0 11 0 - "-" "-" "-" "-" "-"`:                                                                                                                                                "envoy",
		`[2026-11-27T09:00:01.310Z] "- - HTTP/1.1" 400 DPE http1.codec_error - "-" 0 11 0 - "-" "-" "-" "-" "-" - - 10.0.0.1:80 10.0.0.2:999 - -`:                                                                                         "istio",
		`{"start_time":"2026-11-27T09:00:01.310Z","method":null,"path":null,"response_code":400,"response_flags":"DPE"}`:                                                                                                                  "json",
		`{"start_time":"2026-11-27T09:00:01.310Z","method":"-","path":"-","response_code":400,"response_flags":"DPE"}`:                                                                                                                    "json",
		`{"start_time":"2026-11-27T09:00:01.310Z","method":"-","path":"/","response_code":400,"response_flags":"DPE"}`:                                                                                                                    "json",
		`{"level":"info","ts":1646861401.5,"logger":"admin","msg":"admin endpoint started"}`:                                                                                                                                              "caddy",
		`http 2018-11-30T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 - -1 -1 -1 400 - 0 0 "- http://my-loadbalancer:80- -" "-" - - - "-" "-" "-" - 2018-11-30T22:22:48.364000Z "-" "-" "-" "-" "-" "-" "-"`: "alb",
		"#Version: 1.0": "cloudfront",
	} {
		for _, given := range []string{"", format} {
			r := NewReader(strings.NewReader(line), &Options{Format: given})
			if request, err := r.Read(); !errors.Is(err, io.EOF) || r.WithoutRequest != 1 {
				t.Errorf("%q, %s: %v, %v, %+v", given, line, request, err, r.Counts)
			}
		}
	}
}

// A line of JSON that no format reads is not a line without a request.
func TestUnknownJSON(t *testing.T) {
	for _, line := range []string{
		`{"ClientIP":"203.0.113.9","ClientRequestMethod":"GET","ClientRequestURI":"/a","EdgeStartTimestamp":"2025-10-10T13:55:36Z"}`,
		`{"ts":"yesterday","request":{"remote_ip":"203.0.113.9","method":"GET","host":"a","uri":"/a"},"status":200}`,
	} {
		r := NewReader(strings.NewReader(line), &Options{})
		if request, err := r.Read(); !errors.Is(err, io.EOF) || r.Unreadable != 1 {
			t.Errorf("%s: %v, %v, %+v", line, request, err, r.Counts)
		}
	}
}

// Caddy writes its own lines into the same log, and some of them have a path too.
func TestCaddysOwnLines(t *testing.T) {
	r := NewReader(strings.NewReader(`{"level":"info","ts":1646861400.1,"logger":"admin.api","msg":"received request","method":"POST","host":"localhost:2019","uri":"/load","remote_ip":"127.0.0.1","remote_port":"44436"}
{"level":"info","ts":1646861400.2,"logger":"pki.ca.local","msg":"root certificate is already trusted by system","path":"storage:pki/authorities/local/root.crt"}
{"level":"info","ts":1646861400.3,"msg":"serving initial configuration"}
`+samples[11].line+"\n"+samples[11].line), &Options{})
	paths := ""
	for request, err := r.Read(); err == nil; request, err = r.Read() {
		paths += request.Find(Header, ":path").Value + " "
	}
	must.Contains(t, paths, "/a?b=c /a?b=c", "")
	if r.Format != "caddy" || r.Unreadable != 0 {
		t.Errorf("%+v", r.Counts)
	}
}

// Caddy and Traefik hide values of headers: one value for all is not what was sent, and none is not absent.
func TestHiddenHeaders(t *testing.T) {
	for _, line := range []string{
		strings.Replace(samples[11].line, `"X-User":["ann"]`, `"X-User":["REDACTED"]`, 1),
		strings.Replace(samples[11].line, `"X-User":["ann"]`, `"X-User":[]`, 1), // before Caddy 2.7.3
		strings.Replace(samples[12].line, `"request_X-User":"ann"`, `"request_X-User":"REDACTED"`, 1),
	} {
		request := must.Get(NewReader(strings.NewReader(line), &Options{}).Read())(t)
		if f := request.Find(Header, "x-user"); f != nil || request.Find(Header, "user-agent") == nil {
			t.Errorf("%s: %+v", line, f)
		}
	}
}

// Whole seconds stay whole seconds if the duration that leads back to the beginning is finer.
func TestFractions(t *testing.T) {
	for line, want := range map[string]bool{
		`{"time":"2026-01-02T15:04:05Z","path":"/","request_time":"0.004"}`:   false,
		`{"time":"2026-01-02T15:04:05Z","path":"/","duration":4}`:             false,
		`{"msec":"1767366245.678","path":"/","request_time":"0.004"}`:         true,
		`{"start_time":"2026-01-02T15:04:05.678Z","path":"/","duration":"4"}`: true,
		samples[15].line: false,
	} {
		r := NewReader(strings.NewReader(line), &Options{})
		if _, err := r.Read(); err != nil || r.Fractions != want {
			t.Errorf("%s: %v, %+v", line, err, r.Counts)
		}
	}
}

// A line #Fields tells the columns, from then on.
func TestCloudFrontFields(t *testing.T) {
	text := "#Version: 1.0\n#Fields: date time c-ip cs-method cs-uri-stem sc-status\n2026-01-02\t15:04:05\t192.0.2.1\tGET\t/a\t200\n" +
		"#Fields: time date cs-uri-stem cs-method cs(X-User) x-forwarded-for c-ip\n15:04:06\t2026-01-02\t/b\tPUT\tj%C3%B6rg\t192.0.2.9,%20192.0.2.8\t10.0.0.1\n"
	r := NewReader(strings.NewReader(text), &Options{TrustedHops: 1})
	for _, want := range []string{"/a GET 192.0.2.1", "/b PUT 192.0.2.8"} {
		request, err := r.Read()
		must.OKf(t, err, "%+v", r.Counts)
		got := request.Find(Header, ":path").Value + " " + request.Find(Header, ":method").Value + " " + request.Find(Source.Kind, Source.Name).Value
		must.Equal(t, got, want, "")
		if user := request.Find(Header, "x-user"); want[1] == 'b' && (user == nil || user.Value != "jörg") {
			t.Errorf("the user is %v", user)
		}
	}
	if r.Format != "cloudfront" || r.WithoutRequest != 3 || r.Unreadable != 0 {
		t.Errorf("%+v", r.Counts)
	}
}

// Those that pass lines on put something around them.
func TestWrapped(t *testing.T) {
	envoy, caddy := samples[0].line, samples[11].line
	if !strings.HasPrefix(caddy, `{"level"`) {
		t.Fatal(caddy)
	}
	quoted := func(text string) string { return string(must.Get(json.Marshal(text))(t)) }
	const stamp = "2026-01-02T15:04:05.123456789Z "
	for name, line := range map[string]string{
		"a byte order mark":    "\ufeff" + envoy,
		"one of UTF-16":        must.Get(unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(envoy + "\r\n"))(t),
		"the other of UTF-16":  must.Get(unicode.UTF16(unicode.BigEndian, unicode.UseBOM).NewEncoder().String(caddy + "\r\n"))(t),
		"containerd":           stamp + "stdout F " + envoy,
		"containerd, JSON":     stamp + "stderr F " + caddy,
		"containerd, in parts": stamp + "stdout P " + envoy[:40] + "\n" + stamp + "stdout P " + envoy[40:70] + "\n" + stamp + "stdout F " + envoy[70:],
		"a zone":               "2026-01-02T15:04:05.123456789+01:00 stdout F " + envoy,
		"kubectl --timestamps": stamp + caddy,
		"kubectl --prefix":     "[pod/gateway-5d/istio-proxy] " + envoy,
		"both":                 "[pod/gateway-5d/istio-proxy] " + stamp + envoy,
		"Docker":               `{"log":` + quoted(caddy+"\n") + `,"stream":"stdout","time":"2026-01-02T15:04:05.1Z"}`,
		"Docker, in parts":     `{"log":` + quoted(envoy[:50]) + `,"stream":"stdout","time":"2026-01-02T15:04:05.1Z"}` + "\n" + `{"log":` + quoted(envoy[50:]+"\n") + `,"stream":"stdout","time":"2026-01-02T15:04:05.1Z"}`,
	} {
		r := NewReader(strings.NewReader(line), &Options{})
		request, err := r.Read()
		if err != nil {
			t.Errorf("%s: %v, %+v", name, err, r.Counts)
			continue
		}
		if path := request.Find(Header, ":path").Value; path != "/api/v1/locations" && path != "/a?b=c" {
			t.Errorf("%s: the path is %s", name, path)
		}
		if _, err := r.Read(); !errors.Is(err, io.EOF) || r.Lines != 1 {
			t.Errorf("%s: %v, %+v", name, err, r.Counts)
		}
	}
	// Parts that make too long a line.
	parts := strings.Repeat(stamp+"stdout P "+strings.Repeat("a", 16<<10)+"\n", 100) + stamp + "stdout F b\n" + stamp + "stdout F " + envoy
	long := NewReader(strings.NewReader(parts), &Options{})
	if _, err := long.Read(); err != nil || long.Lines != 2 || long.Unreadable != 1 || !strings.Contains(long.Examples[0].Problem, "longer than") {
		t.Errorf("%v, %+v", err, long.Counts)
	}
	// Two streams at once, and a line without an end.
	r := NewReader(strings.NewReader(stamp+"stdout P "+envoy[:40]+"\n"+stamp+"stderr P {\n"+stamp+"stdout F "+envoy[40:]+"\n"), &Options{})
	must.Get(r.Read())(t)
	if _, err := r.Read(); !errors.Is(err, io.EOF) || r.Lines != 2 || r.Unreadable != 1 || !strings.Contains(r.Examples[0].Problem, "end of the line") {
		t.Errorf("%v, %+v", err, r.Counts)
	}
}

func TestFormats(t *testing.T) {
	for _, s := range samples {
		for _, given := range []string{"", s.format} {
			r := NewReader(strings.NewReader(s.line+"\r\n\n"), &Options{Format: given})
			request, err := r.Read()
			if err != nil {
				t.Errorf("%s: %v: %+v", s.name, err, r.Examples)
				continue
			}
			must.Equal(t, r.Format, s.format, "%s: format", s.name)
			must.Equal(t, time.Unix(0, request.Time).UTC().Format(time.RFC3339Nano), s.time, "%s: time", s.name)
			told := map[string]Field{}
			for _, f := range request.Fields {
				if _, twice := told[f.String()]; twice {
					t.Errorf("%s: %s twice", s.name, f.Part)
				}
				told[f.String()] = f
			}
			for part := range strings.SplitSeq(s.parts, " | ") {
				name, value, there := strings.Cut(part, "=")
				f, found := told[name]
				if !found || f.Value != value || f.Absent == there {
					t.Errorf("%s: %s is %q (%v, absent %v), want %q", s.name, name, f.Value, found, f.Absent, value)
				}
			}
			if _, err := r.Read(); !errors.Is(err, io.EOF) || r.Lines != 1 || r.Requests != 1 {
				t.Errorf("%s: %v at the end of %d lines, %d requests", s.name, err, r.Lines, r.Requests)
			}
		}
	}
	// Nobody has told the address of who connected: that is no empty address.
	request, err := NewReader(strings.NewReader(samples[1].line), &Options{}).Read()
	if source := request.Find(Source.Kind, Source.Name); err != nil || source != nil {
		t.Errorf("%+v, %v", source, err)
	}
}

// Lines that nobody meant to write are counted, shown and skipped, whatever is in them.
func TestHostileLines(t *testing.T) {
	good := samples[7].line
	long := strings.Repeat("a", 64<<10)
	for name, test := range map[string]struct {
		line    string
		problem string
	}{
		"no quotes":         {"10.0.0.1 - - nonsense", "too few fields"},
		"an open quote":     {`10.0.0.1 - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1`, "not closed"},
		"an open bracket":   {`10.0.0.1 - - [02/Jan/2026:15:04:05`, "not closed"},
		"no such time":      {`10.0.0.1 - - [32/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, "want a time"},
		"a time in 9999":    {`10.0.0.1 - - [02/Jan/9999:15:04:05 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, "want a time"},
		"control":           {"\x00\x1b[2J\x07", "too few fields"},
		"another shape":     {`10.0.0.1 - - "GET / HTTP/1.1" [02/Jan/2026:15:04:05 +0000] 200 1 "-" "-"`, "not those of the format"},
		"fields":            {strings.Repeat("a ", 1000), "too many fields"},
		"longer than 1 MiB": {strings.Repeat(long, 17), "longer than"},
	} {
		r := NewReader(strings.NewReader(good+"\n"+test.line+"\n"+good), &Options{})
		for range 2 {
			_, err := r.Read()
			must.Reportf(t, err, "%s", name)
		}
		if r.Unreadable != 1 || r.Examples[0].Line != 2 || !strings.Contains(r.Examples[0].Problem, test.problem) ||
			!strings.HasPrefix(test.line, r.Examples[0].Excerpt) || len(r.Examples[0].Excerpt) > maxExcerpt {
			t.Errorf("%s: %d unreadable: %+v, want %q", name, r.Unreadable, r.Examples, test.problem)
		}
	}
	// TLS to a plain port, an empty request: nginx writes lines for what is no request.
	for _, request := range []string{`\x16\x03\x01`, "-", "", "GET", `GET /`} {
		r := NewReader(strings.NewReader(strings.Replace(samples[6].line, "GET /apache_pb.gif HTTP/1.0", request, 1)), &Options{Format: "common"})
		if _, err := r.Read(); !errors.Is(err, io.EOF) || r.WithoutRequest != 1 || r.Unreadable != 0 {
			t.Errorf("%q: %v, %+v", request, err, r.Counts)
		}
	}
	// 64 kB are a path as any other.
	request, err := NewReader(strings.NewReader(strings.Replace(good, "<script>", long, 1)), &Options{}).Read()
	if path := request.Find(Header, ":path"); err != nil || len(path.Value) < len(long) {
		t.Errorf("%v: %v", err, path)
	}
	for _, line := range []string{
		"{", "{}", "[]", `{"start_time":1}`, `{"start_time":"x","path":"/"}`, strings.Repeat(`{"a":`, 100000), `{"path":"/"} {"path":"/"}`,
		`{"start_time":99999999999999999999,"path":"/"}`, `{"start_time":[1],"path":"/"}`,
	} {
		r := NewReader(strings.NewReader(line), &Options{Format: "json"})
		if request, err := r.Read(); !errors.Is(err, io.EOF) || r.Unreadable+r.WithoutRequest != 1 {
			t.Errorf("%.40q: %v, %+v, %+v", line, err, request, r.Counts)
		}
	}
}

func TestGzip(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprintln(w, samples[0].line)
	must.OK(t, w.Close())
	whole := packed.Bytes()
	r := NewReader(bytes.NewReader(whole), &Options{})
	if _, err := r.Read(); err != nil || !r.Gzip || r.Format != "envoy" {
		t.Errorf("%v: %+v", err, r.Counts)
	}
	// Two in one, as logs are appended to.
	r = NewReader(io.MultiReader(bytes.NewReader(whole), bytes.NewReader(whole)), &Options{})
	for range 2 {
		must.Get(r.Read())(t)
	}
	r = NewReader(bytes.NewReader(whole[:len(whole)-12]), &Options{})
	var err error
	for err == nil {
		_, err = r.Read()
	}
	must.Is(t, err, io.ErrUnexpectedEOF, "cut")
	must.Contains(t, err.Error(), "gzip", "cut")
}

// Fields that only the user knows.
func TestMap(t *testing.T) {
	var o Options
	for _, m := range []string{"who.id=header:X-User", "t=time", "3=header:x-user", "uid=property:metadata.filter_metadata.uid", "c=client_ip", "p=path", "h=header:host"} {
		must.Report(t, o.Map(m))
	}
	request, err := NewReader(strings.NewReader(
		`{"t": 1767366245678, "p": "/x", "path": null, "who": {"id": "ann"}, "x_user": "not", "uid": 7, "c": "10.0.0.9", "h": "shop.example"}`), &o).Read()
	for part, want := range map[Part]string{
		{Header, "x-user"}: "ann", {Property, "metadata.filter_metadata.uid"}: "7", Source: "10.0.0.9", Path: "/x", Authority: "shop.example",
	} {
		if f := request.Find(part.Kind, part.Name); err != nil || f == nil || f.Value != want {
			t.Errorf("%v: %v is %+v, want %q", err, part, f, want)
		}
	}
	request, err = NewReader(strings.NewReader(samples[6].line), &o).Read()
	if f := request.Find(Header, "x-user"); err != nil || f == nil || f.Value != "frank" {
		t.Errorf("%v: %+v", err, f)
	}
	for _, wrong := range []string{"", "=header:x", "a", "a=", "a=header", "a=header:", "a=cookie:x", "0=path", "65=path", "3=time"} {
		must.Fails(t, o.Map(wrong), "%q", wrong)
	}
}

// The client is who has connected to the outermost of the trusted proxies.
func TestTrustedHops(t *testing.T) {
	for _, test := range []struct {
		peer, chain string
		hops        int
		want        string
	}{
		{"10.0.0.1", "192.0.2.1, 192.0.2.2", 0, "10.0.0.1"},
		{"10.0.0.1", "192.0.2.1, 192.0.2.2", 1, "192.0.2.2"},
		{"10.0.0.1", "192.0.2.1, 192.0.2.2", 2, "192.0.2.1"},
		{"10.0.0.1", "192.0.2.1, 192.0.2.2", 9, "192.0.2.1"},
		{"10.0.0.1", "", 1, "10.0.0.1"},
		{"", "192.0.2.1,192.0.2.2", 0, "192.0.2.2"},
		{"", "192.0.2.1,192.0.2.2", 1, "192.0.2.1"},
		{"", ", ,", 1, ""},
		{"", "", 0, ""},
	} {
		must.Equal(t, (&Options{TrustedHops: test.hops}).client(test.peer, test.chain), test.want, "%+v", test)
	}
}

// lineAt is a line of the combined format.
func lineAt(at time.Time, path string) string {
	return fmt.Sprintf("{\"time\": %q, \"path\": %q}\n", at.Format(time.RFC3339Nano), path)
}

// Several logs come out in the order of their times, and each in the order of its lines.
func TestMerge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	var logs []*Log
	const each = 3000
	for range 3 {
		var text strings.Builder
		for i := range each {
			text.WriteString(lineAt(begin.Add(time.Duration(i)*time.Second/4+time.Duration(random.IntN(50_000))*time.Millisecond), "/"))
		}
		logs = append(logs, &Log{Name: "log", Reader: NewReader(strings.NewReader(text.String()), &Options{})})
	}
	m := must.Get(Merge(t.Context(), logs))(t)
	last, n := int64(0), 0
	for {
		r, err := m.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.OK(t, err)
		if r.Time < last {
			t.Fatalf("request %d goes back by %v", n, time.Duration(last-r.Time))
		}
		last = r.Time
		n++
	}
	m.Close()
	must.Equal(t, n, 3*each, "lines")
	for _, log := range logs {
		if log.Moved == 0 || log.Late != 0 || log.Most > 50*time.Second {
			t.Errorf("%+v", log.Disorder)
		}
	}
}

// A request that comes more than a minute late counts when it comes; a request without a time of
// its own counts in the order of its line.
func TestLate(t *testing.T) {
	begin := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	text := lineAt(begin, "/a") + lineAt(begin.Add(2*time.Minute), "/c") + lineAt(begin.Add(90*time.Second), "/b") +
		lineAt(begin.Add(4*time.Minute), "/e") + lineAt(begin.Add(time.Second), "/late") + lineAt(begin.Add(4*time.Minute), "/f")
	log := &Log{Name: "log", Reader: NewReader(strings.NewReader(text), &Options{})}
	m := must.Get(Merge(t.Context(), []*Log{log}))(t)
	paths := ""
	for range 6 {
		r := must.Get(m.Next())(t)
		paths += fmt.Sprintf("%s@%v ", r.Find(Header, ":path").Value, time.Duration(r.Time-begin.UnixNano()))
	}
	m.Close()
	must.Equal(t, paths, "/a@0s /b@1m30s /c@2m0s /late@2m0s /e@4m0s /f@4m0s ", "")
	if log.Moved != 1 || log.Late != 1 || log.Most != 4*time.Minute-time.Second {
		t.Errorf("%+v", log.Disorder)
	}
}

// A merge that nobody waits for ends.
func TestMergeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	endless := io.MultiReader(strings.NewReader(samples[0].line+"\n"), &repeated{text: samples[0].line + "\n"})
	m := must.Get(Merge(ctx, []*Log{{Name: "log", Reader: NewReader(endless, &Options{})}}))(t)
	cancel()
	m.Close()
	broken := io.MultiReader(strings.NewReader(samples[0].line+"\n"), &repeated{})
	_, err := Merge(t.Context(), []*Log{{Name: "broken.log", Reader: NewReader(broken, &Options{})}})
	must.Is(t, err, io.ErrNoProgress, "a log that can't be read")
	must.Contains(t, fmt.Sprint(err), "broken.log", "")
}

// repeated is a text without end, and an error if it is empty.
type repeated struct{ text string }

func (r *repeated) Read(b []byte) (int, error) {
	if r.text == "" {
		return 0, io.ErrNoProgress
	}
	return copy(b, r.text), nil
}

// No line makes a parser fail, and what it tells is within bounds.
func FuzzLine(f *testing.F) {
	for _, s := range samples {
		f.Add(s.line)
	}
	f.Add("\x1f\x8b\x08\x00")
	f.Add("[2016-04-15T0:13:00.0]\"CONNECT - HTTP/2\" 4 s 4 0 6 0 \"\" \"\" \"\" \"\" \"p://10.0.2.1:80\"")
	f.Add(`{"a":{"b":{"c":[{"d":1}]}}}`)
	f.Fuzz(func(t *testing.T, line string) {
		for _, format := range append([]string{""}, Formats...) {
			o := Options{Format: format, TrustedHops: 1}
			must.OK(t, o.Map("2=header:x-two"))
			r := NewReader(strings.NewReader(line), &o)
			for {
				request, err := r.Read()
				if err != nil {
					break
				}
				must.Between(t, request.Time, 0, 7289654400e9-1, "%s: time", format)
				// A CONNECT's path is a dash.
				if path := request.Find(Header, ":path"); path == nil || path.Absent && !strings.Contains(line, "CONNECT") {
					t.Errorf("%s: a request without a path", format)
				}
				for i := range request.Fields {
					f := &request.Fields[i]
					if request.Find(f.Kind, f.Name) != f || f.Absent != (f.Value == "") {
						t.Errorf("%s: %+v", format, f)
					}
				}
			}
			must.Equal(t, r.Lines, r.Requests+r.WithoutRequest+r.Unreadable, "%s: %+v", format, r.Counts)
		}
	})
}
