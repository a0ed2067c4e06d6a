package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/unicode"
)

const (
	// maxLine is the length of the longest line that is read, in bytes.
	maxLine = 1 << 20
	// maxExamples bounds the unreadable lines that are shown.
	maxExamples = 3
	// maxExcerpt bounds the bytes that are shown of such a line.
	maxExcerpt = 120
)

var errLongLine = errors.New("longer than " + strconv.Itoa(maxLine) + " bytes")

// Counts has the counts of a reader.
type Counts struct {
	// Format is empty until a line could be read.
	Format string
	Gzip   bool
	// Lines counts all lines that are not empty. Lines without a request are Unreadable or
	// WithoutRequest.
	Lines, Requests, Unreadable, WithoutRequest int64
	// Examples are the first lines that could not be read.
	Examples []Example
	// Fractions says that times have fractions of a second.
	Fractions bool
}

// Example is a line that could not be read.
type Example struct {
	Line    int64  `json:"line"` // counted from 1
	Problem string `json:"problem"`
	// Excerpt is the line's beginning.
	Excerpt string `json:"excerpt"`
}

// Reader reads one log. It is not safe for concurrent use.
type Reader struct {
	Counts
	options *Options
	in      io.Reader
	lines   *bufio.Reader
	number  int64
	long    []byte
	parser  parser
	parts   map[string][]byte // of lines whose end is to come, by their stream
	slab    []Field
}

type parser interface {
	parse(line string, r *Request) error
}

// NewReader returns a reader of a log.
func NewReader(in io.Reader, o *Options) *Reader { return &Reader{options: o, in: in} }

// Read returns the next request, or io.EOF after the last.
func (r *Reader) Read() (request Request, err error) {
	if r.lines == nil {
		if err := r.open(); err != nil {
			return request, err
		}
	}
	for {
		line, err := r.line()
		if errors.Is(err, io.EOF) {
			r.broken()
		}
		if err != nil && !errors.Is(err, errLongLine) {
			return request, err
		}
		if len(line) == 0 && err == nil {
			continue
		}
		if err == nil {
			if line = r.unwrap(line); line == nil {
				continue
			}
			if len(line) > maxLine {
				err = errLongLine
			}
		}
		r.Lines++
		if err == nil {
			request, err = r.parse(string(line))
		}
		switch {
		case err == nil:
			r.Requests++
			if !r.Fractions {
				// A time that the log tells: of the beginning, or of the end.
				lasted, _ := request.Lasted()
				r.Fractions = request.Time%1e9 != 0 && (request.Time+lasted)%1e9 != 0
			}
			return request, nil
		case errors.Is(err, errNoRequest):
			r.WithoutRequest++
		default:
			r.unreadable(line, err)
		}
	}
}

func (r *Reader) open() error {
	r.lines = bufio.NewReaderSize(r.in, 1<<16)
	if head, _ := r.lines.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		unpacked, err := gzip.NewReader(r.lines)
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		r.Gzip, r.lines = true, bufio.NewReaderSize(unpacked, 1<<16)
	}
	if head, _ := r.lines.Peek(2); string(head) == "\xff\xfe" || string(head) == "\xfe\xff" {
		r.lines = bufio.NewReaderSize(unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Reader(r.lines), 1<<16)
	}
	return nil
}

// line returns the next line without its end. It is valid until the next call.
func (r *Reader) line() (line []byte, err error) {
	line, err = r.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.longLine(line)
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	if err != nil && !errors.Is(err, errLongLine) {
		if r.Gzip && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("gzip: %w", err)
		}
		return nil, err
	}
	r.number++
	return bytes.TrimRight(line, "\r\n"), err
}

// longLine reads the rest of a line that is longer than the buffer, and keeps its beginning.
func (r *Reader) longLine(line []byte) ([]byte, error) {
	r.long = append(r.long[:0], line...)
	for {
		more, err := r.lines.ReadSlice('\n')
		if len(r.long) <= maxLine {
			r.long = append(r.long, more...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(r.long) > maxLine && (err == nil || errors.Is(err, io.EOF)) {
			return r.long, errLongLine
		}
		return r.long, err
	}
}

// parse reads a line. The first readable line decides the format, or a line that names columns.
func (r *Reader) parse(line string) (request Request, err error) {
	if names, found := strings.CutPrefix(line, "#Fields:"); found && (r.options.Format == "" || r.options.Format == cloudFront) {
		r.parser, r.Format = newTable(r.options, strings.Fields(names)), cloudFront
	}
	if strings.HasPrefix(line, "#") {
		return request, errNoRequest
	}
	request.Fields = r.fields()
	if r.parser != nil {
		err = r.parser.parse(line, &request)
		// The other lines of Caddy's log may have looked like requests, but there are few before its first.
		if r.Requests > 100 || r.Format != "json" || r.options.Format != "" || !errors.Is(err, errNoRequest) {
			r.keep(&request)
			return request, err
		}
	}
	candidates := Formats
	if r.options.Format != "" {
		candidates = []string{r.options.Format}
	}
	for _, format := range candidates {
		p := newParser(format, r.options)
		request.Fields = request.Fields[:0]
		problem := p.parse(line, &request)
		if problem == nil {
			r.parser, r.Format = p, format
			r.keep(&request)
			return request, nil
		}
		// A line that lacks what a dialect calls a request may be of another program.
		if err == nil || len(candidates) > 1 && errors.Is(problem, errNoRequest) && dialects[format] == nil {
			err = problem
		}
	}
	if len(candidates) > 1 && !errors.Is(err, errNoRequest) {
		err = errors.New("in none of the formats " + strings.Join(candidates, ", "))
	}
	return request, err
}

func newParser(format string, o *Options) parser {
	if at := slices.IndexFunc(layouts, func(l layout) bool { return l.name == format }); at >= 0 {
		return &text{options: o, layout: &layouts[at]}
	}
	if format == cloudFront {
		return newTable(o, cloudFrontColumns)
	}
	return &object{options: o, dialect: cmp.Or(dialects[format], usual), targets: map[string]target{}}
}

// fields returns memory for the fields of a request. Several requests share a piece of memory.
func (r *Reader) fields() []Field {
	const usual = 32
	if cap(r.slab)-len(r.slab) < usual {
		r.slab = make([]Field, 0, 64*usual)
	}
	return r.slab[len(r.slab):]
}

func (r *Reader) keep(request *Request) {
	n := len(request.Fields)
	if n <= cap(r.slab)-len(r.slab) {
		r.slab = r.slab[:len(r.slab)+n]
	}
	request.Fields = request.Fields[:n:n]
}

func (r *Reader) unreadable(line []byte, err error) {
	r.Unreadable++
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, Example{Line: r.number, Problem: err.Error(), Excerpt: string(line[:min(len(line), maxExcerpt)])})
	}
}
