package usage

import (
	"encoding/base64"
	"encoding/binary"

	"weir/internal/jsonpath"
)

// amazon reads messages of the format application/vnd.amazon.eventstream
// (https://smithy.io/2.0/aws/amazon-eventstream.html). A message is its length, the length of its
// headers and a checksum, of four bytes each; the headers; the payload; a checksum. Checksums are
// not verified, but impossible lengths end the reading.
type amazon struct {
	prelude [preludeSize]byte
	filled  int
	// The bytes left of the message's parts.
	headers, payload, trailer uint32

	inner  jsonpath.Reader // of the text in Base64 that a payload may have
	within bool            // that has begun
	closed bool            // it has ended, or there is none
	// encoded is the beginning of its next block.
	encoded, decoded []byte
}

const (
	preludeSize = 12
	trailerSize = 4
	// A message has at most 24 MiB, and its headers at most 128 KiB.
	maxMessage = 24 << 20
	maxHeaders = 128 << 10
	// encodedBlock is how many characters of Base64 are decoded at once: a multiple of four.
	encodedBlock = 1024
)

// bytesPath leads to the Base64 text that a payload may contain.
var bytesPath, _ = jsonpath.Compile("bytes")

func (a *amazon) feed(r *Reader, piece []byte) {
	for len(piece) > 0 && !r.broken {
		switch {
		case a.filled < preludeSize:
			n := copy(a.prelude[a.filled:], piece)
			a.filled += n
			if piece = piece[n:]; a.filled == preludeSize {
				a.begin(r)
			}
		case a.headers > 0:
			piece = piece[skip(&a.headers, piece):]
		case a.payload > 0:
			n := skip(&a.payload, piece)
			a.read(r, piece[:n])
			piece = piece[n:]
		default:
			if piece = piece[skip(&a.trailer, piece):]; a.trailer == 0 {
				a.filled = 0
			}
		}
	}
}

// skip returns how many bytes of a piece belong to a part, and subtracts them from left.
func skip(left *uint32, piece []byte) int {
	n := min(len(piece), int(*left))
	*left -= uint32(n)
	return n
}

func (a *amazon) begin(r *Reader) {
	size, headers := binary.BigEndian.Uint32(a.prelude[:]), binary.BigEndian.Uint32(a.prelude[4:])
	if size > maxMessage || headers > maxHeaders || size < preludeSize+trailerSize || headers > size-preludeSize-trailerSize {
		r.broken = true
		return
	}
	a.headers, a.payload, a.trailer = headers, size-preludeSize-trailerSize-headers, trailerSize
	a.inner.Reset(bytesPath)
	a.within, a.closed, a.encoded = false, false, a.encoded[:0]
	r.begin()
}

// read reads a piece of a payload, up to a text in Base64, and then that. Behind it is only padding.
func (a *amazon) read(r *Reader, piece []byte) {
	for len(piece) > 0 {
		block := piece[:min(len(piece), encodedBlock)]
		piece = piece[len(block):]
		part, since := []byte(nil), 0
		if !a.closed {
			a.closed = a.inner.Feed(block)
			part, since = a.inner.Part()
		}
		if !a.within {
			if r.read(block[:len(block)-since]); since > 0 {
				a.within = true
				r.begin()
			}
		}
		a.decode(r, part)
	}
}

// decode reads a part of the text in Base64. Blocks are the same wherever pieces end.
func (a *amazon) decode(r *Reader, part []byte) {
	for len(part)+len(a.encoded) > 0 {
		n := min(len(part), encodedBlock-len(a.encoded))
		a.encoded, part = append(a.encoded, part[:n]...), part[n:]
		if len(a.encoded) < encodedBlock && !a.closed {
			return
		}
		var err error
		a.decoded, err = base64.StdEncoding.AppendDecode(a.decoded[:0], a.encoded)
		if a.encoded = a.encoded[:0]; err != nil {
			a.closed = true
			return
		}
		r.read(a.decoded)
	}
}
