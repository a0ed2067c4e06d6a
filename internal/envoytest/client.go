package envoytest

import "net/http"

// Client is http.DefaultClient with a transport of its own: an httptest.Server that is closed closes the
// idle connections of http.DefaultTransport, and breaks an answer that is just being read there for
// another test.
var Client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
