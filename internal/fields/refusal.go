package fields

import "strconv"

const (
	// Exceeded is what a person reads, and gRPC clients as the status message.
	Exceeded = "Rate limit exceeded"
	// ProblemType is the content type of [Problem].
	ProblemType = "application/problem+json"
)

// Problem returns a refusal of an HTTP status as a problem document (RFC 9457).
//
//go:noinline
func Problem(status int) string {
	return `{"title":"` + Exceeded + `","status":` + strconv.Itoa(status) + `}`
}
