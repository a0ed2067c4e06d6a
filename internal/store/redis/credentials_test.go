package redis_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
)

// tokens is a fake of the clouds' token services. Each answer has another token, token-1 and so on, which a moment later is too
// old to be given out again.
type tokens struct {
	n    atomic.Int64
	away atomic.Bool
	on   func(token string)
}

func (f *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.away.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	token, soon := "token-"+strconv.FormatInt(f.n.Add(1), 10), time.Now().Add(time.Minute)
	switch {
	case r.URL.Path == "/azure" && r.Header.Get("X-Identity-Header") == "proof" && r.URL.Query().Get("resource") == "https://redis.azure.com":
		fmt.Fprintf(w, `{"access_token": %q, "expires_on": "%d", "resource": "https://redis.azure.com", "token_type": "Bearer"}`, token, soon.Unix())
	case strings.HasPrefix(r.URL.Path, "/computeMetadata/v1/instance/service-accounts/default/token") && r.Header.Get("Metadata-Flavor") == "Google":
		fmt.Fprintf(w, `{"access_token": %q, "expires_in": 60, "token_type": "Bearer"}`, token)
	case r.URL.Path == "/aws":
		fmt.Fprintf(w, `{"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "secret", "Token": %q, "Expiration": %q}`, token, soon.UTC().Format(time.RFC3339))
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	f.on(token)
}

// auths are the clouds whose passwords a URL may want, and further parameters.
var auths = map[string]string{"entra": "", "gcp": "", "aws-iam": "&aws_name=My-Cache&aws_region=eu-north-1&aws_serverless=true"}

// setTokenServices has the clouds' clients ask a fake.
func setTokenServices(t *testing.T, url string) {
	t.Helper()
	for name, value := range map[string]string{
		"AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential", "IDENTITY_ENDPOINT": url + "/azure", "IDENTITY_HEADER": "proof",
		"GCE_METADATA_HOST": strings.TrimPrefix(url, "http://"), "GOOGLE_APPLICATION_CREDENTIALS": "", "HOME": t.TempDir(),
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/aws", "AWS_ACCESS_KEY_ID": "", "AWS_PROFILE": "", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
}

// A store connects by what the token service says at the time, though the password changes, and fails while that is away.
func TestRenewedCredentials(t *testing.T) {
	server := redistest.Start(t)
	admin := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = admin.Close() })
	for auth, parameters := range auths {
		t.Run(auth, func(t *testing.T) {
			f := &tokens{}
			web := httptest.NewServer(f)
			defer web.Close()
			setTokenServices(t, web.URL)
			// The server knows the newest token alone. It can't check a signature of AWS, so there any password will do.
			f.on = func(token string) {
				password := ">" + token
				if auth == "aws-iam" {
					password = "nopass"
				}
				must.Report(t, admin.Do(context.Background(), "ACL", "SETUSER", "weir", "reset", "on", password, "~*", "&*", "+@all").Err())
			}
			s := must.Get(redis.Open("redis://weir@"+server.Addr+"?pool_size=1&max_retries=-1&auth="+auth+parameters, redis.Options{}))(t)
			defer func() {
				must.Report(t, s.Close())
			}()
			for round := range 3 {
				must.OKf(t, s.Ping(t.Context()), "round %d", round)
				must.Contains(t, must.Get(admin.ClientList(t.Context()).Result())(t), "user=weir", "round %d: clients", round)
				f.on("token-0") // what was given out is not taken any more
				must.OK(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "weir").Err())
				// The connection is dead before its next use is tried.
				for range 2 {
					if s.Ping(t.Context()) == nil {
						break
					}
				}
			}
			if auth != "aws-iam" && f.n.Load() < 3 {
				t.Errorf("%d tokens, want one of each connection", f.n.Load())
			}
			f.away.Store(true)
			f.on("token-0")
			must.OK(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "weir").Err())
			failed := false
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for range 2 {
				failed = s.Ping(ctx) != nil
			}
			must.Equal(t, failed, true, "it connects while the token service is away")
		})
	}
}

// What a token service says that makes no sense is an error of the store. Whoever wants no longer to wait for a service that
// says nothing, or asks to be asked again, does not.
func TestStrangeTokenServices(t *testing.T) {
	server := redistest.Start(t)
	const silence = ""
	for auth, parameters := range auths {
		for _, reply := range []string{"401 {}", "403 denied", "200 ", "200 {", `200 {"access_token": `, `200 {"access_token": 5}`, "200 []", "200 null", "200 {}", "302 ", "500 " + strings.Repeat("x", 1<<20), silence} {
			asked, over := make(chan struct{}, 100), make(chan struct{})
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked <- struct{}{}; reply == silence {
					<-over
					return
				}
				status, body, _ := strings.Cut(reply, " ")
				code, _ := strconv.Atoi(status)
				w.WriteHeader(code)
				_, _ = w.Write([]byte(body))
			}))
			setTokenServices(t, web.URL)
			s := must.Get(redis.Open("redis://weir@"+server.Addr+"?pool_size=1&max_retries=-1&auth="+auth+parameters, redis.Options{}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Ping(ctx) }()
			if <-asked; reply == silence || reply[0] == '5' {
				cancel()
			}
			if err := <-ended; err == nil || len(err.Error()) > 2000 {
				t.Errorf("%s: %.40q: error %.3000v", auth, reply, err)
			}
			cancel()
			close(over)
			must.Report(t, s.Close())
			web.Close()
		}
	}
}

// The token for AWS is a request that AWS itself could check, for the user, the cache and the region, with the session's token.
func TestAWSToken(t *testing.T) {
	f := &tokens{on: func(string) {}}
	web := httptest.NewServer(f)
	defer web.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", web.URL+"/aws")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_REGION", "eu-north-1")
	user, token, err := redis.Credentials(t.Context(), "rediss://ann@cache.example:6379?auth=aws-iam&aws_service=memorydb&aws_name=My-Cache")
	if err != nil || user != "ann" || !strings.HasPrefix(token, "my-cache/?") {
		t.Fatalf("got %s, %s, %v", user, token, err)
	}
	u := must.Get(neturl.Parse("http://" + token))(t)
	got := u.Query()
	must.Equal(t, got.Get("X-Amz-Credential"), "AKIDEXAMPLE/"+(got.Get("X-Amz-Date")[:8])+"/eu-north-1/memorydb/aws4_request", "credential")
	for name, want := range map[string]string{"Action": "connect", "User": "ann", "X-Amz-Expires": "900", "X-Amz-Security-Token": "token-1", "X-Amz-SignedHeaders": "host", "ResourceType": ""} {
		must.Equal(t, got.Get(name), want, "%s", name)
	}
	must.Equal(t, len(got.Get("X-Amz-Signature")), 64, "signature %q", got.Get("X-Amz-Signature"))
}

// URLs that can't be right are refused when the store is opened, without what they have of secrets.
func TestWrongAuth(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://weir@h?auth=entra":                                "auth: want TLS with it, as by rediss://: whoever is on the way could read the password",
		"redis+cluster://weir@h?auth=gcp":                          "auth: want TLS with it, as by rediss://: whoever is on the way could read the password",
		"redis+cluster://weir@localhost:6379,h:6379?auth=gcp":      "auth: want TLS with it, as by rediss://: whoever is on the way could read the password",
		"redis+sentinel://weir@127.0.0.1/m?auth=gcp":               "auth: want TLS with it, as by rediss://: whoever is on the way could read the password",
		"rediss://weir@h?auth=kerberos":                            `auth: want aws-iam, entra, gcp, got "kerberos"`,
		"rediss://weir:secret@h?auth=gcp":                          "auth: want no password in the URL, as it comes from the cloud",
		"rediss://h?auth=entra":                                    "auth: want a user in the URL with entra, as in rediss://user@host:6379",
		"rediss://weir@h?auth=aws-iam":                             "aws_name: want the name of the cache or cluster, which the token is for",
		"rediss://weir@h?auth=aws-iam&aws_name=a&aws_service=s3":   `aws_service: want elasticache or memorydb, got "s3"`,
		"rediss://weir@h?auth=aws-iam&aws_name=a&aws_serverless=1": `aws_serverless: want true, got "1"`,
		"rediss+cluster://weir@h?auth=gcp&aws_name=a":              "aws_name: want auth=aws-iam with it",
		"rediss+sentinel://h/m?aws_region=eu-north-1":              "aws_region: want auth=aws-iam with it",
	} {
		_, err := redis.Open(url, redis.Options{})
		must.Equal(t, fmt.Sprint(err), "redis url: "+want, "%s", url)
	}
}
