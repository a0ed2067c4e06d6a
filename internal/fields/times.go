package fields

import "strconv"

// Package time can do what is here, but with what it needs the plugin would be a tenth larger.

// appendDuration appends seconds as time.Duration has them: 6m0s.
func appendDuration(dst []byte, seconds uint64) []byte {
	if hours := seconds / 3600; hours > 0 {
		dst = append(strconv.AppendUint(dst, hours, 10), 'h')
	}
	if minutes := seconds / 60; minutes > 0 {
		dst = append(strconv.AppendUint(dst, minutes%60, 10), 'm')
	}
	return append(strconv.AppendUint(dst, seconds%60, 10), 's')
}

// appendTime appends a Unix time as RFC 3339 has it, in UTC: 2026-11-23T07:10:00Z.
func appendTime(dst []byte, seconds uint64) []byte {
	const day = 24 * 60 * 60
	year, month, dayOfMonth := date(seconds / day)
	s := seconds % day
	dst = append(strconv.AppendUint(dst, year, 10), '-')
	dst = append(appendPair(dst, month), '-')
	dst = append(appendPair(dst, dayOfMonth), 'T')
	dst = append(appendPair(dst, s/3600), ':')
	dst = append(appendPair(dst, s/60%60), ':')
	return append(appendPair(dst, s%60), 'Z')
}

func appendPair(dst []byte, n uint64) []byte { return append(dst, '0'+byte(n/10), '0'+byte(n%10)) }

// date is the date of a day that is so many days after 1970-01-01. It counts from March of the year 0,
// so that the day that not every year has is the last one of a year:
// https://howardhinnant.github.io/date_algorithms.html#civil_from_days
func date(days uint64) (year, month, day uint64) {
	const (
		toEpoch  = 719_468 // days from 0000-03-01
		years4   = 365*4 + 1
		years100 = years4*25 - 1
		years400 = years100*4 + 1
	)
	days += toEpoch
	ofEra := days % years400
	ofEraYear := (ofEra - ofEra/(years4-1) + ofEra/years100 - ofEra/(years400-1)) / 365
	ofYear := ofEra - (ofEraYear*365 + ofEraYear/4 - ofEraYear/100)
	fromMarch := (5*ofYear + 2) / 153
	year, month, day = days/years400*400+ofEraYear, fromMarch+3, ofYear-(153*fromMarch+2)/5+1
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, day
}
