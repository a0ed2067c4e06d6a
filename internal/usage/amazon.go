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

	inner   jsonpath.Reader
	closed  bool // inner has found its value
	opened  bool
	within  bool // decoded is a text
	decoded []byte
}

const (
	preludeSize = 12
	trailerSize = 4
	// A message has at most 24 MiB, and its headers at most 128 KiB.
	maxMessage = 24 << 20
	maxHeaders = 128 << 10
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
			if piece = piece[n:]; a.payload == 0 && a.within {
				r.begin()
				r.read(a.decoded)
			}
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
	a.opened, a.closed, a.within = false, false, false
	r.begin()
}

// read reads a piece of a payload.
func (a *amazon) read(r *Reader, piece []byte) {
	r.read(piece)
	if !a.opened {
		a.inner.Reset(bytesPath)
		a.opened = true
	}
	if a.closed || !a.inner.Feed(piece) {
		return
	}
	a.closed = true
	value, kind := a.inner.Value()
	if kind != jsonpath.String {
		return
	}
	var err error
	a.decoded, err = base64.StdEncoding.AppendDecode(a.decoded[:0], value)
	a.within = err == nil
}
