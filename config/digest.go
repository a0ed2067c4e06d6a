package config

// digest returns a hash of a value. The fields of an object may be in any order, and the configuration's
// backend, which has secrets, is left out.
func (v *value) digest() uint64 {
	hash := uint64(v.kind)
	switch v.kind {
	case kindString:
		return digestOf(hash, v.text)
	case kindNumber: // 100 is 1e2
		d := parseDecimal(v.raw)
		if hash += uint64(d.exponent) << 8; d.negative {
			hash++
		}
		return digestOf(scatter(hash), d.digits)
	case kindArray, kindObject:
	default:
		return digestOf(hash, v.raw)
	}
	e := v.elements()
	for e.next() {
		element := &value{}
		switch e.read(element); {
		case v.kind == kindArray:
			hash = hash*prime + element.digest()
		case v.parent != nil || element.name != "backend":
			hash += scatter(digestOf(element.digest(), element.name))
		}
	}
	return scatter(hash)
}

// prime is the multiplier of FNV-1a.
const prime = 1099511628211

func digestOf(hash uint64, text string) uint64 {
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * prime
	}
	return scatter(hash)
}

// scatter spreads each bit over all others: the end of SplitMix64.
func scatter(hash uint64) uint64 {
	hash = (hash ^ hash>>30) * 0xbf58476d1ce4e5b9
	hash = (hash ^ hash>>27) * 0x94d049bb133111eb
	return hash ^ hash>>31
}
