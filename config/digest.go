package config

import "math"

// digest returns a hash of a value. The fields of an object may be in any order, and the configuration's
// backend, which has secrets, is left out.
func (v *value) digest() uint64 {
	hash, text := uint64(v.kind), v.raw
	switch v.kind {
	case kindString:
		text = v.text
	case kindNumber: // 100 is 1e2
		d := parseDecimal(v.raw)
		text, hash = d.digits, hash+uint64(d.exponent)<<8
	case kindArray, kindObject:
		v.each("", 0, math.MaxInt32, func(element *value) {
			switch {
			case v.kind == kindArray:
				hash = digestOf(hash+element.digest(), "")
			case v.parent != nil || element.name != "backend":
				hash += digestOf(element.digest(), element.name)
			}
		})
		text = ""
	}
	return digestOf(hash, text)
}

// digestOf continues a hash by FNV-1a, and spreads each bit over all others by the end of SplitMix64.
//
//go:noinline
func digestOf(hash uint64, text string) uint64 {
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	hash = (hash ^ hash>>30) * 0xbf58476d1ce4e5b9
	hash = (hash ^ hash>>27) * 0x94d049bb133111eb
	return hash ^ hash>>31
}
