package fields

import (
	"bytes"
	"math"
	"strconv"

	"weir/internal/calendar"
)

// An upstream with limits of its own tells in its responses when it wants the next request.

// Held is how long, in nanoseconds, the upstream wants no further requests, as a response of a status
// tells at the time now since 1970; 0 for not at all. A refusal tells it in Retry-After and its kin. Any
// response may tell that nothing remains, and until when. field returns a field of the response.
func Held(status int, field func(name string) ([]byte, bool), now int64) (nanos int64) {
	if status == 429 || status == 503 {
		if value, ok := field("retry-after-ms"); ok {
			nanos = number(value, 1e6)
		} else if value, ok = field("retry-after"); ok {
			nanos = untilReset(value, now)
		}
		if nanos > 0 || status == 503 {
			return max(nanos, 0)
		}
		nanos = 0
	}
	for i := range remainders {
		r := &remainders[i]
		if value, ok := field(r.remaining); ok && number(value, 1) == 0 {
			if value, ok = field(r.reset); ok {
				nanos = max(nanos, untilReset(value, now))
			}
		}
	}
	if value, ok := field("ratelimit"); ok {
		nanos = max(nanos, spent(value))
	}
	return nanos
}

// Limit returns the least limit a minute of requests, or of tokens, that the upstream tells. ok is false if it tells none.
func Limit(tokens bool, field func(name string) ([]byte, bool)) (limit uint64, ok bool) {
	names := &limits[0]
	if tokens {
		names = &limits[1]
	}
	for _, name := range names {
		if value, there := field(name); there {
			if n := number(value, 1); n > 0 && (!ok || uint64(n) < limit) {
				limit, ok = uint64(n), true
			}
		}
	}
	return limit, ok
}

// limits are the fields with limits a minute, of requests and of tokens. Others do not tell of which time theirs are.
var limits = [2][2]string{
	{"x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit"},
	{"x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit"},
}

// remainders are fields of what remains, and of when more does.
var remainders = [...]struct{ remaining, reset string }{
	{"x-ratelimit-remaining", "x-ratelimit-reset"},
	{"x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"},
	{"x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"},
	{"anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"},
	{"anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"},
	{"anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"},
	{"anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"},
	{"ratelimit-remaining", "ratelimit-reset"},
}

// forever is longer than any wait, in nanoseconds, and may be added to any time.
const forever = int64(math.MaxInt64 / 4)

// untilReset reads how long it is until a reset: seconds, a duration such as 1m30.5s or 20ms, seconds or
// milliseconds since 1970, a date of HTTP, or one of RFC 3339. It is 0 for a time that has passed, and
// for anything else.
func untilReset(value []byte, now int64) (nanos int64) {
	const sinceEpoch, inMillis = 1e9, 1e12 // seconds from 2001 on; larger numbers are milliseconds
	switch n := number(value, 1); {
	case n >= inMillis:
		return max(number(value, 1e6)-now, 0)
	case n >= sinceEpoch:
		return max(number(value, 1e9)-now, 0)
	case n >= 0:
		return number(value, 1e9)
	}
	if at, ok := date(value); ok {
		return min(max(min(max(at, 0), math.MaxInt64/1_000_000_000)*1e9-now, 0), forever)
	}
	return duration(value)
}

// number reads a decimal number in units of so many nanoseconds; -1 if it is none. What is too large is
// forever.
func number(text []byte, unit int64) int64 {
	n, rest, ok := leading(text, unit)
	if !ok || len(rest) > 0 {
		return -1
	}
	return n
}

// leading reads the decimal number that a text begins with, in whole units.
func leading(text []byte, unit int64) (n int64, rest []byte, ok bool) {
	for ; len(text) > 0 && text[0]-'0' <= 9; text, ok = text[1:], true {
		if digit := int64(text[0] - '0'); n > (forever-digit*unit)/10 {
			n = forever
		} else {
			n = 10*n + digit*unit
		}
	}
	if ok && len(text) > 1 && text[0] == '.' && text[1]-'0' <= 9 {
		for text = text[1:]; len(text) > 0 && text[0]-'0' <= 9; text = text[1:] {
			unit /= 10
			n += int64(text[0]-'0') * unit
		}
	}
	return min(n, forever), text, ok
}

// duration reads a duration as Go writes it.
func duration(text []byte) (nanos int64) {
	for len(text) > 0 {
		unit, length := int64(0), 0
		_, rest, ok := leading(text, 1)
		for i := range units {
			if u := &units[i]; len(rest) >= len(u.name) && string(rest[:len(u.name)]) == u.name {
				unit, length = u.nanos, len(u.name)
				break
			}
		}
		if !ok || unit == 0 {
			return 0
		}
		n, _, _ := leading(text, unit)
		nanos, text = min(nanos+n, forever), rest[length:]
	}
	return nanos
}

var units = [...]struct {
	name  string
	nanos int64
}{{"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}}

// date reads a date of HTTP or of RFC 3339, in seconds since 1970.
func date(text []byte) (seconds int64, ok bool) {
	var year, month, day, clock, zone int64
	digits := func(at, size int) (n int64) {
		for _, c := range text[at : at+size] {
			if c -= '0'; c > 9 {
				ok = false
				return 0
			}
			n = 10*n + int64(c)
		}
		return n
	}
	ok = true
	switch n := len(text); {
	case n == len("Sun, 06 Nov 1994 08:49:37 GMT") && text[3] == ',' && string(text[n-4:]) == " GMT":
		year, day = digits(12, 4), digits(5, 2)
		for i := range months {
			if string(text[8:11]) == months[i] {
				month = int64(i) + 1
			}
		}
		clock = 17
	case n >= len("1994-11-06T08:49:37Z") && text[4] == '-' && text[7] == '-' && text[10]|0x20 == 't':
		year, month, day = digits(0, 4), digits(5, 2), digits(8, 2)
		clock = 11
		rest := text[19:]
		if rest[0] == '.' {
			rest = bytes.TrimLeft(rest[1:], "0123456789")
		}
		switch {
		case len(rest) == 1 && rest[0]|0x20 == 'z':
		case len(rest) == 6 && rest[3] == ':' && (rest[0] == '+' || rest[0] == '-'):
			at := n - 6
			zone = digits(at+1, 2)*3600 + digits(at+4, 2)*60
			if rest[0] == '-' {
				zone = -zone
			}
		default:
			return 0, false
		}
	default:
		return 0, false
	}
	if at := int(clock); text[at+2] != ':' || text[at+5] != ':' {
		return 0, false
	}
	clock = digits(int(clock), 2)*3600 + digits(int(clock)+3, 2)*60 + digits(int(clock)+6, 2)
	if !ok || month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, false
	}
	return (calendar.DaysTo(year, month)+day-1)*86400 + clock - zone, true
}

var months = [...]string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}

// spent reads RateLimit of draft-ietf-httpapi-ratelimit-headers: the longest t of the limits of which
// nothing remains.
func spent(list []byte) (nanos int64) {
	remains, in := int64(-1), int64(-1)
	quoted := false
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list) || list[i] == ',' && !quoted:
			if remains == 0 {
				nanos = max(nanos, in)
			}
			remains, in = -1, -1
		case list[i] == '\\' && quoted:
			i++
		case list[i] == '"':
			quoted = !quoted
		case list[i] == ';' && !quoted:
			at := i + 1
			for at < len(list) && list[at] == ' ' {
				at++
			}
			if at+1 >= len(list) || list[at+1] != '=' {
				continue
			}
			switch n, _, ok := leading(list[at+2:], 1e9); {
			case !ok:
			case list[at] == 'r':
				remains = n
			case list[at] == 't':
				in = n
			}
		}
	}
	return nanos
}

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

// AppendJSON appends a template, in which % stands for the next text, # for the next number, and, of a
// number of nanoseconds, @ for the Unix time, $ for the seconds, rounded up as in header fields, and ~
// for the milliseconds. Texts must need no escapes.
//
//go:noinline
func AppendJSON(dst []byte, template string, texts []string, numbers []int64) []byte {
	start := 0
	for i := range len(template) {
		unit := int64(0)
		switch template[i] {
		case '%':
		case '@', '$':
			unit = second
		case '~':
			unit = 1e6
		case '#':
			unit = 1
		default:
			continue
		}
		dst = add(dst, template[start:i])
		start = i + 1
		if unit == 0 {
			dst = add(dst, texts[0])
			texts = texts[1:]
			continue
		}
		n := numbers[0]
		numbers = numbers[1:]
		if template[i] == '@' {
			dst = AppendTime(dst, uint64(n/unit))
		} else {
			dst = strconv.AppendUint(dst, ceil(n, unit), 10)
		}
	}
	return add(dst, template[start:])
}
