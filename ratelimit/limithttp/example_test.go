package limithttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"weir/ratelimit"
	"weir/ratelimit/limithttp"
	"weir/window"
)

// noon is the examples' clock. A program leaves ratelimit.Options.Now out.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// A server lets each client's address have two requests a minute. A network of 64 bits is one
// client in IPv6.
func ExampleMiddleware() {
	shop, err := ratelimit.New(ratelimit.Options{Now: noon}).NewNamespace(ratelimit.NamespaceOptions{
		Name:  "shop",
		Rules: []ratelimit.Rule{{Name: "per-client", Limits: []window.Limit{ratelimit.SlidingWindow(2, time.Minute)}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	perClient, err := shop.Limiter("per-client")
	if err != nil {
		fmt.Println(err)
		return
	}
	limit := limithttp.Middleware(shop, func(r *http.Request) []ratelimit.Demand {
		return []ratelimit.Demand{{Limiter: perClient, Cost: 1, Key: []string{limithttp.ClientIP(r, 32, 64)}}}
	}, limithttp.Options{})
	server := httptest.NewServer(limit(http.HandlerFunc(hello))) // or http.ListenAndServe
	defer server.Close()

	for range 3 {
		response, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		response.Body.Close()
		fmt.Printf("%s, retry after %q: %s\n",
			response.Status, response.Header.Get("Retry-After"), response.Header.Get("RateLimit"))
	}
	// Output:
	// 200 OK, retry after "": "per-client";r=1;t=120
	// 200 OK, retry after "": "per-client";r=0;t=90
	// 429 Too Many Requests, retry after "90": "per-client";r=0;t=90
}

// Each user, as a header names them, has a limit, and all of them together have another one. What
// one rule refuses takes nothing from the other.
func ExampleMiddleware_header() {
	shop, err := ratelimit.New(ratelimit.Options{Now: noon}).NewNamespace(ratelimit.NamespaceOptions{
		Name: "shop",
		Rules: []ratelimit.Rule{
			{Name: "per-user", Limits: []window.Limit{ratelimit.FixedWindow(1, time.Second)}},
			{Name: "all", Limits: []window.Limit{ratelimit.TokenBucket(100, time.Second, 5)}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	perUser, err := shop.Limiter("per-user")
	if err != nil {
		fmt.Println(err)
		return
	}
	all, err := shop.Limiter("all")
	if err != nil {
		fmt.Println(err)
		return
	}
	limit := limithttp.Middleware(shop, func(r *http.Request) []ratelimit.Demand {
		if r.URL.Path == "/healthz" {
			return nil // has no limit
		}
		return []ratelimit.Demand{
			{Limiter: perUser, Cost: 1, Key: []string{r.Header.Get("X-User")}},
			{Limiter: all, Cost: 1},
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
