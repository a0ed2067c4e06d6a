package usage

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// search finds whether a text contains any of some words. Its words begin so much alike that a
// single pass finds the beginnings of all.
type search struct {
	_ [0]func() // keeps Go from generating an equality function

	words [][]byte
	beginning
}

// beginning is the first two bytes of words, as far as these are alike. Each field repeats a byte
// eight times, so that it compares with eight bytes of a text at once.
type beginning struct {
	// first and second are the bits that all words have in common.
	first, second pattern
}

// pattern is a byte's bits, of which the bits in mask count. The highest bit never counts, so that
// 0x7f can be added to what differs in each of eight bytes, without a carry.
type pattern struct{ mask, bits uint64 }

const (
	each    = 0x0101010101010101
	lower7  = 0x7f * each
	highest = 0x80 * each
)

func patternOf(c byte) pattern { return pattern{mask: lower7, bits: lower7 & (uint64(c) * each)} }

// with returns a pattern that both patterns' bytes have.
func (p pattern) with(other pattern) pattern {
	mask := p.mask & other.mask &^ (p.bits ^ other.bits)
	return pattern{mask: mask, bits: p.bits & mask}
}

// differs returns zero in each byte that has the pattern, and at most 0x7f in others.
func (p pattern) differs(eight uint64) uint64 { return (eight ^ p.bits) & p.mask }

// mostIgnored is how many bits of two bytes words of a search may differ in. Each ignored bit
// doubles the places in texts where a word seems to begin.
const mostIgnored = 4

// addWord adds a word to the first search whose words it is like, or else as another search.
func addWord(list []search, word []byte) []search {
	added := search{words: [][]byte{word}}
	if len(word) > 1 {
		added.first, added.second = patternOf(word[0]), patternOf(word[1])
		for i := range list {
			if list[i].join(&added) {
				return list
			}
		}
	}
	return append(list, added)
}

// join adds the words of a search to s, if all begin alike.
func (s *search) join(added *search) (joined bool) {
	first, second := s.first.with(added.first), s.second.with(added.second)
	if bits.OnesCount64(first.mask)+bits.OnesCount64(second.mask) < bits.OnesCount64(lower7)*2-8*mostIgnored {
		return false
	}
	s.words, s.first, s.second = append(s.words, added.words...), first, second
	return true
}

// in reports whether a text contains any of the words.
func (s *search) in(text []byte) bool {
	if s.first.mask == 0 { // the word is shorter than a beginning
		return bytes.Contains(text, s.words[0])
	}
	for len(text) > 8 {
		text = text[pass(text, &s.beginning):]
		for at := uint64(0); at == 0 && len(text) > 8; text = text[8:] {
			at = s.places(text)
			for rest := at; rest != 0; rest &= rest - 1 {
				if s.begins(text[bits.TrailingZeros64(rest)/8:]) {
					return true
				}
			}
		}
	}
	for ; len(text) > 1; text = text[1:] {
		if s.begins(text) {
			return true
		}
	}
	return false
}

// begins reports whether a text begins with any of the words.
func (s *search) begins(text []byte) bool {
	for _, word := range s.words {
		if bytes.HasPrefix(text, word) {
			return true
		}
	}
	return false
}

// places returns the places where the first eight bytes of a text have the beginning: the highest
// bit of a byte that begins like the words. The text has another byte.
func (b *beginning) places(text []byte) uint64 { return ^b.others(text) & highest }

// others returns the highest bit of each of the first eight bytes that does not begin like the
// words. Its other bits mean nothing.
func (b *beginning) others(text []byte) uint64 {
	return lower7 + (b.first.differs(binary.LittleEndian.Uint64(text)) | b.second.differs(binary.LittleEndian.Uint64(text[1:])))
}

// passed is how many bytes pass compares at once.
const passed = 32

// passPortably does the same as pass, on every processor.
func passPortably(text []byte, b *beginning) (at int) {
	for ; at+passed < len(text); at += passed {
		all := b.others(text[at:]) & b.others(text[at+8:]) & b.others(text[at+16:]) & b.others(text[at+24:])
		if all&highest != highest {
			break
		}
	}
	return at
}
