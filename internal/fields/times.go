package fields

import (
	"strconv"

	"weir/internal/calendar"
)

// Package time can do this too, but would make the plugin a tenth larger.

// appendDuration appends seconds in the form of time.Duration: 6m0s.
func appendDuration(dst []byte, seconds uint64) []byte {
	if hours := seconds / 3600; hours > 0 {
		dst = append(strconv.AppendUint(dst, hours, 10), 'h')
	}
	if minutes := seconds / 60; minutes > 0 {
		dst = append(strconv.AppendUint(dst, minutes%60, 10), 'm')
	}
	return append(strconv.AppendUint(dst, seconds%60, 10), 's')
}

// AppendTime appends a Unix time in the form of RFC 3339, in UTC: 2026-11-23T07:10:00Z.
func AppendTime(dst []byte, seconds uint64) []byte {
	const day = 24 * 60 * 60
	year, month, dayOfMonth := calendar.Date(int64(seconds / day))
	s := seconds % day
	dst = append(strconv.AppendInt(dst, year, 10), '-')
	dst = append(appendPair(dst, uint64(month)), '-')
	dst = append(appendPair(dst, uint64(dayOfMonth)), 'T')
	dst = append(appendPair(dst, s/3600), ':')
	dst = append(appendPair(dst, s/60%60), ':')
	return append(appendPair(dst, s%60), 'Z')
}

func appendPair(dst []byte, n uint64) []byte { return append(dst, '0'+byte(n/10), '0'+byte(n%10)) }
