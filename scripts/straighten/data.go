package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

const (
	// widestGap is the longest run of zeros inside a segment; a longer run ends the segment. Each
	// segment takes up to 9 bytes of the module, an entry in the engine's memory, and a call in the
	// C that wasm2c writes. But Envoy keeps several copies of a module's bytes, so long runs are
	// not written out.
	widestGap = 16
	// recordSize is the size of a record in the table of [findTable]. sparse is the most bytes
	// between two of its segments.
	recordSize = 20
	sparse     = 3 * recordSize
	// smallestTable is the size from which a table of records is worth a function.
	smallestTable = 64 << 10
)

// dataSegment initializes a part of a new instance's memory.
type dataSegment struct {
	offset int
	bytes  []byte
}

func (s dataSegment) end() int { return s.offset + len(s.bytes) }

// table is the place of a table of records in memory. It begins and ends at a multiple of 4.
type table struct{ from, to int }

func (t table) worthwhile() bool { return t.to-t.from >= smallestTable }

// findTable finds the largest part of the data whose segments are small and close to each other.
// That is runtime.findfunctab, which has 20 bytes for each 4 KiB of the addresses of functions.
// Most bytes are zero. A function of WebAssembly takes 64 KiB of addresses, so that 16 records are
// the same. Go's linker makes a segment of each, 40,000 in all.
func findTable(body []byte) (largest table, err error) {
	segments, err := dataSegments(body)
	var t table
	for _, s := range segments {
		small := len(s.bytes) <= recordSize
		if !small || s.offset-t.to > sparse {
			t = table{from: s.offset &^ 3}
		}
		if small {
			t.to = s.end() &^ 3
		}
		if t.to-t.from > largest.to-largest.from {
			largest = t
		}
	}
	return largest, err
}

// pack joins a module's data into few segments. In a table, each word is written as its difference
// from the same word of the record before, which is nearly always zero. The code of [table.unpack]
// restores the table.
func pack(body []byte, t table) ([]byte, error) {
	segments, err := dataSegments(body)
	if err != nil || len(segments) == 0 {
		return body, err
	}
	memory := make([]byte, segments[len(segments)-1].end())
	for _, s := range segments {
		copy(memory[s.offset:], s.bytes)
	}
	if t.worthwhile() {
		for at := t.to - 4; at >= t.from+recordSize; at -= 4 {
			word, before := binary.LittleEndian.Uint32(memory[at:]), binary.LittleEndian.Uint32(memory[at-recordSize:])
			binary.LittleEndian.PutUint32(memory[at:], word-before)
		}
	}
	segments = split(memory)
	out := binary.AppendUvarint(nil, uint64(len(segments)))
	for _, s := range segments {
		out = append(out, 0, opI32Const)
		out = append(appendSigned(out, int64(int32(s.offset))), opEnd)
		out = binary.AppendUvarint(out, uint64(len(s.bytes)))
		out = append(out, s.bytes...)
	}
	return out, nil
}

// split makes segments of all bytes but long runs of zeros.
func split(memory []byte) (segments []dataSegment) {
	gap := make([]byte, widestGap+1)
	for at := 0; ; {
		for at < len(memory) && memory[at] == 0 {
			at++
		}
		if at == len(memory) {
			return segments
		}
		n := bytes.Index(memory[at:], gap)
		if n < 0 {
			n = len(bytes.TrimRight(memory[at:], "\x00"))
		}
		segments = append(segments, dataSegment{at, memory[at : at+n]})
		at += n
	}
}

// unpack returns the code of a function that adds to each word of a table the word of the record
// before.
func (t table) unpack() []byte {
	code := append([]byte{1, 1, typeI32, opI32Const}, appendSigned(nil, int64(t.from))...) // one local, of 32 bits
	code = append(code, opLocalSet, 0, opLoop, empty,
		opLocalGet, 0,
		opLocalGet, 0, opI32Load, 2, recordSize,
		opLocalGet, 0, opI32Load, 2, 0,
		opI32Add, opI32Store, 2, recordSize,
		opLocalGet, 0, opI32Const, 4, opI32Add, opLocalTee, 0,
		opI32Const)
	code = appendSigned(code, int64(t.to-recordSize))
	return append(code, opI32LtU, opBrIf, 0, opEnd, opEnd)
}

// dataSegments returns the segments in the order of their offsets. They must have constant offsets
// and must not overlap: Go's linker makes no others.
func dataSegments(body []byte) (segments []dataSegment, err error) {
	r := reader{b: body}
	for n := r.u32(); n > 0 && !r.bad; n-- {
		active := r.byte() == 0 && r.byte() == opI32Const
		offset := r.signed()
		if ended := r.byte() == opEnd; !r.bad && (!active || !ended) {
			return nil, errors.New("a segment of data has no constant offset")
		}
		segments = append(segments, dataSegment{int(uint32(offset)), r.bytes(r.u32())})
	}
	if r.bad || r.more() {
		return nil, fmt.Errorf("%w: section of data", errMalformed)
	}
	slices.SortFunc(segments, func(a, b dataSegment) int { return a.offset - b.offset })
	for i := 1; i < len(segments); i++ {
		if segments[i].offset < segments[i-1].end() {
			return nil, errors.New("segments of data overlap")
		}
	}
	return segments, nil
}
