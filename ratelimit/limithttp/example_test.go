package limithttp_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"weir/ratelimit"
	"weir/ratelimit/limithttp"
)

// noon is the examples' clock. A program leaves ratelimit.Options.Now out.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// A server allows each client address two requests an hour. In IPv6 a network of 64 bits counts as
// a client.
func ExampleMiddleware() {
	perClient, err := ratelimit.NewLimiter(ratelimit.SlidingLog(2, time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	limit := limithttp.Middleware(func(r *http.Request) []ratelimit.Demand {
		return []ratelimit.Demand{perClient.Demand(ratelimit.Key{limithttp.ClientIP(r, 32, 64)}, 1)}
	}, limithttp.Options{})
	server := httptest.NewServer(limit(http.HandlerFunc(hello))) // or http.ListenAndServe
	defer server.Close()

	for range 3 {
		response, err := http.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		fmt.Println(response.Status, response.Header.Get("X-RateLimit-Remaining"), response.Header.Get("RateLimit-Policy"))
	}
	// Output:
	// 200 OK 1 "default";q=2;w=3600
	// 200 OK 0 "default";q=2;w=3600
	// 429 Too Many Requests 0 "default";q=2;w=3600
}

// Each user, named by a header, has a limit, and all of them together have another. A request that
// one rule refuses takes nothing from the other.
func ExampleMiddleware_header() {
	shop, err := ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop",
		Now:  noon,
		Rules: []ratelimit.Rule{
			{Name: "per-user", Limits: []ratelimit.Limit{ratelimit.FixedWindow(1, time.Second)}},
			{Name: "all", Limits: []ratelimit.Limit{ratelimit.TokenBucket(100, time.Second, 5)}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	perUser, err := shop.Limiter("per-user")
	if err != nil {
		log.Fatal(err)
	}
	all, err := shop.Limiter("all")
	if err != nil {
		log.Fatal(err)
	}
	limit := limithttp.Middleware(func(r *http.Request) []ratelimit.Demand {
		if r.URL.Path == "/healthz" {
			return nil // has no limit
		}
		return []ratelimit.Demand{
			perUser.Demand(ratelimit.Key{r.Header.Get("X-User")}, 1),
			all.Demand(nil, 1),
		}
	}, limithttp.Options{Omit: limithttp.XRateLimit})
	handler := limit(http.HandlerFunc(hello))

	for _, user := range []string{"ann", "bob", "ann"} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header.Set("X-User", user)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		fmt.Println(user, response.Code, response.Header().Get("RateLimit"))
	}
	// Output:
	// ann 200 "per-user";r=0;t=1, "all";r=4;t=1
	// bob 200 "per-user";r=0;t=1, "all";r=3;t=1
	// ann 429 "per-user";r=0;t=1, "all";r=3;t=1
}
