package fields

import "strconv"

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
