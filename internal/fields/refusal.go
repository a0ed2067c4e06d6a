package fields

import "strconv"

const (
	// Exceeded is the text for a person, and the status message of gRPC clients.
	Exceeded = "Rate limit exceeded"
	// ProblemType is the content type of [Problem].
	ProblemType = "application/problem+json"
)

// Unread is the text for a person whose request has a body that can't be read, and the status
// message of gRPC clients.
const Unread = "The request's body can't be read for what it costs"

// UnreadProblem is [Unread] as a problem document.
const UnreadProblem = `{"title":"` + Unread + `","status":400}`

// TooLargeMessage is the text for a person whose request wants more than its rule allows for any
// request.
const TooLargeMessage = "Request too large"

// TooLargeProblem is [TooLargeMessage] as a problem document.
const TooLargeProblem = `{"title":"` + TooLargeMessage + `","status":400}`

// Problem returns a refusal with an HTTP status as a problem document (RFC 9457), of the type of the
// draft's. violated are the names of limits without room, quoted and separated by commas; "" if they are
// not told.
//
//go:noinline
func Problem(status int, violated string) string {
	if violated != "" {
		violated = `,"violated-policies":[` + violated + `]`
	}
	return `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"` + Exceeded + `","status":` + strconv.Itoa(status) +
		violated + `}`
}
