package accesslog

import (
	"bytes"
	"errors"
	"time"

	"github.com/tidwall/gjson"
)

var errBroken = errors.New("the end of the line is missing")

var byteOrderMark = []byte("\ufeff")

// unwrap returns a line without what those that passed it on put around it: a byte order mark,
// kubectl logs --prefix and --timestamps, containerd and CRI-O, and Docker. It returns nil if the
// rest of the line is to come, as container runtimes cut long lines into parts.
func (r *Reader) unwrap(line []byte) []byte {
	line = bytes.TrimPrefix(line, byteOrderMark)
	if bytes.HasPrefix(line, []byte("[pod/")) {
		if _, rest, found := bytes.Cut(line, []byte("] ")); found {
			line = rest
		}
	}
	if bytes.HasPrefix(line, []byte(`{"log":`)) && gjson.ValidBytes(line) {
		if text, stream := gjson.GetBytes(line, "log").Str, gjson.GetBytes(line, "stream").Str; isStream(stream) {
			whole, last := bytes.CutSuffix([]byte(text), []byte("\n"))
			return r.join(stream, whole, last)
		}
	}
	if len(line) < 20 || line[10] != 'T' { // most lines
		return line
	}
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	if _, err := time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return line
	}
	stream, tagged, _ := bytes.Cut(rest, []byte(" "))
	if !isStream(string(stream)) {
		return rest
	}
	// https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
	tags, text, _ := bytes.Cut(tagged, []byte(" "))
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	return r.join(string(stream), text, string(tag) != "P")
}

func isStream(name string) bool { return name == "stdout" || name == "stderr" }

// join returns a line of a stream once its last part is there. It cuts a line that is too long, and
// keeps more than maxLine bytes of it, so that the caller can tell.
func (r *Reader) join(stream string, part []byte, last bool) []byte {
	before := r.parts[stream]
	if last && len(before) == 0 {
		return append([]byte{}, part...) // not nil
	}
	if len(before) <= maxLine {
		before = append(before, part...)
	}
	if r.parts == nil {
		r.parts = map[string][]byte{}
	}
	if last {
		delete(r.parts, stream)
		return before
	}
	r.parts[stream] = before
	return nil
}

// broken counts the lines of which the log has no end.
func (r *Reader) broken() {
	for stream, line := range r.parts {
		delete(r.parts, stream)
		r.Lines++
		r.unreadable(line, errBroken)
	}
}
