package clientip

import "strconv"

// parseAddress reads an IPv4 or IPv6 address without a zone. It writes IPv4 to the last four bytes
// of address, and IPv6 to all of it. IPv4 addresses in IPv6, such as ::ffff:10.0.0.1, count as
// IPv4.
func parseAddress(text []byte, address *[16]byte) (v4, ok bool) {
	*address = [16]byte{}
	if parseIPv4(text, address[12:]) {
		return true, true
	}
	ok = parseIPv6(text, address)
	return ok && mapped(address), ok
}

// mapped reports whether an address is an IPv4 address in IPv6.
func mapped(address *[16]byte) bool {
	return [12]byte(address[:]) == [12]byte{10: 0xff, 11: 0xff}
}

func parseIPv4(text, address []byte) bool {
	at, octet, digits := 0, 0, 0
	for _, c := range text {
		switch {
		case c == '.' && digits > 0 && at < 3:
			address[at] = byte(octet)
			at, octet, digits = at+1, 0, 0
		case c >= '0' && c <= '9' && (digits == 0 || octet > 0): // some programs read a leading zero as octal
			if octet = 10*octet + int(c-'0'); octet > 255 {
				return false
			}
			digits++
		default:
			return false
		}
	}
	address[3] = byte(octet)
	return at == 3 && digits > 0
}

func parseIPv6(text []byte, address *[16]byte) bool {
	at, gap := 0, -1 // the index into address, and that of the zeros that were left out
	if len(text) >= 2 && text[0] == ':' && text[1] == ':' {
		gap = 0
		text = text[2:]
	}
	for len(text) > 0 {
		if at == len(address) {
			return false
		}
		group, digits := 0, 0
		for digits < len(text) && digits < 5 {
			d := HexDigit(text[digits])
			if d < 0 {
				break
			}
			group = group<<4 | d
			digits++
		}
		if digits < len(text) && text[digits] == '.' {
			// The last four bytes may be written as an IPv4 address.
			if at > 12 || gap < 0 && at != 12 || !parseIPv4(text, address[at:at+4]) {
				return false
			}
			at += 4
			break
		}
		if digits == 0 || digits > 4 {
			return false
		}
		address[at], address[at+1] = byte(group>>8), byte(group)
		at += 2
		if text = text[digits:]; len(text) == 0 {
			break
		}
		if text[0] != ':' || len(text) == 1 {
			return false
		}
		if text = text[1:]; text[0] == ':' {
			if gap >= 0 {
				return false
			}
			gap = at
			text = text[1:]
		}
	}
	if at == len(address) {
		return gap < 0
	}
	if gap < 0 {
		return false
	}
	tail := at - gap
	copy(address[len(address)-tail:], address[gap:at])
	clear(address[gap : len(address)-tail])
	return true
}

// MaxText is the most bytes of [Text].
const MaxText = 39

// Text returns an address or network of a key, as [Network] makes it, in the form in which people write it.
// The bytes are in memory. Any other value is returned as it is.
//
//go:noinline
func Text(value []byte, memory *[MaxText]byte) []byte {
	text := memory[:0]
	switch len(value) {
	default:
		return value
	case 4:
		for i, b := range value {
			if i > 0 {
				text = append(text, '.')
			}
			text = strconv.AppendUint(text, uint64(b), 10)
		}
	case 16:
		gap, end := -1, 0 // the first of the longest zeros is left out, if it is more than a group
		for i := 0; i < 16; i += 2 {
			j := i
			for j < 16 && value[j]|value[j+1] == 0 {
				j += 2
			}
			if j-i > max(2, end-gap) {
				gap, end = i, j
			}
		}
		for i := 0; i < 16; i += 2 {
			if i == gap {
				text = append(text, "::"...)
				if i = end; i == 16 {
					break
				}
			} else if i > 0 {
				text = append(text, ':')
			}
			text = strconv.AppendUint(text, uint64(value[i])<<8|uint64(value[i+1]), 16)
		}
	}
	return text
}

// HexDigit returns the value of a hexadecimal digit, or -1 for any other byte.
func HexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
