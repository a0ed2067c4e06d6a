package e2e

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// reply is an answer to a client.
type reply struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
}

// ask sends a GET. Headers are name, value, name, value …. The names :method, :path and :body set
// the method, path and body.
func ask(t *testing.T, client *http.Client, address string, headers ...string) reply {
	t.Helper()
	return must.Get(send(t, client, address, headers...))(t)
}

// send is [ask] where the request may fail.
func send(t *testing.T, client *http.Client, address string, headers ...string) (reply, error) {
	t.Helper()
	return do(client, request(t, address, nil, headers...))
}

// fetch gets a page, which must be there.
func fetch(t *testing.T, url string) (body string) {
	t.Helper()
	r := must.Get(send(t, envoytest.Client, url, ":path", ""))(t)
	must.EqualOrEnd(t, r.status, http.StatusOK, "%s: status", url)
	return r.body
}

// request returns a request with headers like those of [ask]. With a body it is a POST.
func request(t *testing.T, address string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	method, path := http.MethodGet, "/"
	if body != nil {
		method = http.MethodPost
	}
	header, host := http.Header{}, ""
	for i := 0; i < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; name {
		case ":method":
			method = value
		case ":path":
			path = value
		case ":body":
			body = strings.NewReader(value)
		case "host":
			host = value
		default:
			header.Add(name, value)
		}
	}
	request := must.Get(http.NewRequestWithContext(t.Context(), method, address+path, body))(t)
	request.Header, request.Host = header, host
	return request
}

// do sends a request, and reads the whole answer.
func do(client *http.Client, request *http.Request) (reply, error) {
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	got, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return reply{}, err
	}
	return reply{status: response.StatusCode, header: response.Header, trailer: response.Trailer, body: string(got)}, nil
}

// want compares headers with lines of "name: value"; "name:" stands for no header.
func (r reply) want(t *testing.T, lines string) {
	t.Helper()
	wantHeaders(t, r.header.Values, lines)
}

// wantHeaders compares the values of headers with lines of "name: value"; "name:" stands for no
// header.
func wantHeaders(t *testing.T, values func(name string) []string, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		colon := 1 + strings.IndexByte(line[1:], ':') // the first colon of :status is part of the name
		name, value := line[:colon], strings.TrimSpace(line[colon+1:])
		must.Equal(t, strings.Join(values(name), " | "), value, "%s", name)
	}
}
