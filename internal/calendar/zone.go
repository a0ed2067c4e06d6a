package calendar

import (
	"slices"
	"strings"
)

// zone says how far a clock is ahead of UTC, and when it is changed.
type zone struct {
	// standard and summer are the offsets from UTC without and with daylight saving, in seconds.
	standard, summer int64
	saves            bool
	// begins and ends are the changes to and from daylight saving.
	begins, ends change
	// changes happen before the rule applies, and may be empty.
	changes []changed
}

// change is the moment of each year at which the clock is changed: a second of the week-th weekday
// of a month, or of the last such weekday if week is 5. Sunday is 0.
type change struct{ month, week, weekday, second int64 }

// changed is a change of the clock to an offset, at a time in seconds since the Unix epoch.
type changed struct{ at, offset int64 }

func (z *zone) equal(other *zone) bool {
	return z.standard == other.standard && z.summer == other.summer && z.saves == other.saves &&
		z.begins == other.begins && z.ends == other.ends && slices.Equal(z.changes, other.changes)
}

// utc has no changes.
var utc = zone{}

// zoneOf returns the zone of an IANA name, or nil if there is none.
func zoneOf(name string) *zone {
	if name == "UTC" {
		return &utc
	}
	if name == "" || name[0] < 'A' || strings.IndexByte(name, ' ') >= 0 {
		return nil // it would match a rule or a change in the table
	}
	at := strings.Index(zones, " "+name+" ")
	if at < 0 {
		return nil
	}
	for at > 0 && zones[at-1] != '\n' {
		at--
	}
	rule, line, _ := strings.Cut(zones[at:], " ")
	z := parse(rule)
	if z == nil {
		return nil
	}
	last := changed{}
	for {
		word, rest, _ := strings.Cut(line, " ")
		by, to, ok := strings.Cut(word, ":")
		if !ok {
			return z
		}
		line = rest
		last.at += 900 * quarters(by)
		last.offset += 900 * quarters(to)
		z.changes = append(z.changes, last)
	}
}

// quarters reads a number of the table, in quarters of an hour.
func quarters(text string) int64 {
	r := rule{text}
	return r.sign() * r.digits()
}

// parse reads a rule of POSIX. Its changes, if it has any, must name weekdays of months. It returns
// nil if the text is no such rule.
func parse(text string) *zone {
	r := rule{text}
	z := &zone{}
	r.name()
	z.standard = -r.offset()
	if r.text == "" {
		return z
	}
	z.saves = true
	r.name()
	if z.summer = z.standard + 3600; r.text != "" && r.text[0] != ',' {
		z.summer = -r.offset()
	}
	z.begins, z.ends = r.change(), r.change()
	if r.text != "" {
		return nil
	}
	return z
}

// rule is the unread rest of a rule's text. Its methods read from the front.
type rule struct{ text string }

// name skips a name: letters, or anything in angle brackets.
func (r *rule) name() {
	if strings.HasPrefix(r.text, "<") {
		_, r.text, _ = strings.Cut(r.text, ">")
		return
	}
	for r.text != "" && r.text[0] >= 'A' {
		r.text = r.text[1:]
	}
}

// offset reads hours, minutes and seconds, and returns seconds.
func (r *rule) offset() (seconds int64) {
	sign := r.sign()
	seconds = 3600 * r.digits()
	if r.skip(':') {
		seconds += 60 * r.digits()
	}
	if r.skip(':') {
		seconds += r.digits()
	}
	return sign * seconds
}

func (r *rule) sign() int64 {
	if r.skip('-') {
		return -1
	}
	r.skip('+')
	return 1
}

func (r *rule) skip(c byte) bool {
	if r.text == "" || r.text[0] != c {
		return false
	}
	r.text = r.text[1:]
	return true
}

func (r *rule) digits() (n int64) {
	for range 9 {
		if r.text == "" || r.text[0] < '0' || r.text[0] > '9' {
			break
		}
		n = 10*n + int64(r.text[0]-'0')
		r.text = r.text[1:]
	}
	return n
}

// change reads a text such as ",M3.5.0/2": the last Sunday of March, at two.
func (r *rule) change() (c change) {
	if !r.skip(',') || !r.skip('M') {
		r.text = "?"
		return c
	}
	c.month = r.digits()
	r.skip('.')
	c.week = r.digits()
	r.skip('.')
	c.weekday = r.digits()
	if c.second = 7200; r.skip('/') {
		c.second = r.offset()
	}
	if c.month < 1 || c.month > 12 || c.week < 1 || c.week > 5 || c.weekday > 6 {
		r.text = "?"
	}
	return c
}

// in returns the moment of the change in a year, in seconds since the Unix epoch by the clock as it
// is until then.
func (c *change) in(year int64) int64 {
	first := DaysTo(year, c.month)
	weekday := (first + 4) - 7*floor(first+4, 7) // 1 January 1970 was a Thursday
	days := first + (c.weekday-weekday+7)%7 + 7*(c.week-1)
	if c.week == 5 && days >= DaysTo(year+c.month/12, c.month%12+1) {
		days -= 7
	}
	return 86400*days + c.second
}

// offset returns how many seconds the clock is ahead of UTC at a time, which is in seconds since
// the Unix epoch.
func (z *zone) offset(at int64) int64 {
	if n := len(z.changes); n > 0 && at < z.changes[n-1].at {
		offset := z.changes[0].offset
		for i := range z.changes {
			if z.changes[i].at > at {
				break
			}
			offset = z.changes[i].offset
		}
		return offset
	}
	if !z.saves {
		return z.standard
	}
	year, _, _ := Date(floor(at+z.standard, 86400))
	begins, ends := z.begins.in(year)-z.standard, z.ends.in(year)-z.summer
	if summer := begins <= at && at < ends; begins < ends && summer || begins > ends && (at < ends || begins <= at) {
		return z.summer
	}
	return z.standard
}

// instant returns the time at which the clock shows this many seconds since the Unix epoch. If the
// clock shows them twice, the first time counts. If it skips them, the offset from before the
// change counts (RFC 5545, 3.3.5).
func (z *zone) instant(local int64) int64 {
	const before = 36 * 3600 // earlier than any change that matters here, and later than the change before that
	offset := z.offset(local - before)
	if at := local - offset; z.offset(at) == offset {
		return at
	} else if after := z.offset(at); z.offset(local-after) == after {
		return local - after
	}
	return local - offset
}
