package config

// Statuses is a set of HTTP statuses.
type Statuses struct {
	classes uint8 // bit 4 stands for 4xx
	codes   []int
}

// Has reports whether a status is in the set. A nil *Statuses has all statuses.
func (s *Statuses) Has(status int) bool {
	if s == nil || s.classes>>(status/100)&1 != 0 {
		return true
	}
	for _, code := range s.codes {
		if code == status {
			return true
		}
	}
	return false
}

const maxStatuses = 64

var chargeWhenFields = []field{{"status", required}}

// readChargeWhen reads which responses a rule charges.
func readChargeWhen(v *value) *Statuses {
	s := new(Statuses)
	v.object(`{"status": ["401", "403"]}`, chargeWhenFields, func(_ string, v *value) {
		v.array("statuses", 1, maxStatuses, s.read)
	})
	return s
}

// read reads a status such as "403", or a class such as "5xx".
func (s *Statuses) read(v *value) {
	if text := v.text; v.kind == kindString && len(text) == 3 && text[0] >= '1' && text[0] <= '5' {
		if text[1:] == "xx" {
			s.classes |= 1 << (text[0] - '0')
			return
		}
		if isDigit(text[1]) && isDigit(text[2]) {
			s.codes = append(s.codes, int(text[0]-'0')*100+int(text[1]-'0')*10+int(text[2]-'0'))
			return
		}
	}
	v.wrong(`a status from "100" to "599", or a class such as "5xx"`)
}
