package convert

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// directive is a directive of nginx.
type directive struct {
	at    place
	name  string
	args  []string
	block []*directive
}

func (d *directive) arg(i int) string {
	if i < len(d.args) {
		return d.args[i]
	}
	return ""
}

// find returns the directives of a name in a block.
func (d *directive) find(name string) (all []*directive) {
	for _, o := range d.block {
		if o.name == name {
			all = append(all, o)
		}
	}
	return all
}

func (d *directive) first(name string) *directive {
	for _, o := range d.block {
		if o.name == name {
			return o
		}
	}
	return &directive{}
}

// maxNested bounds how deep blocks nest in blocks, and files in files.
const maxNested = 64

// scanner reads the words of nginx's configuration file.
type scanner struct {
	c    *converter
	text string
	here place
}

func (s *scanner) take(bytes int) {
	for taken := s.text[:bytes]; taken != ""; {
		r, size := utf8.DecodeRuneInString(taken)
		if taken = taken[size:]; r == '\n' {
			s.here.line, s.here.column = s.here.line+1, 1
		} else {
			s.here.column++
		}
	}
	s.text = s.text[bytes:]
}

const spaces = " \t\r\n"

// word reads the next word: mark is " for a text, or else the word itself: ; { or }. At the end of
// the file, text is empty and mark is 0.
func (s *scanner) word() (text string, mark byte, at place) {
	for {
		s.take(len(s.text) - len(strings.TrimLeft(s.text, spaces)))
		if !strings.HasPrefix(s.text, "#") {
			break
		}
		if end := strings.IndexByte(s.text, '\n'); end >= 0 {
			s.take(end)
		} else {
			s.take(len(s.text))
		}
	}
	if at = s.here; s.text == "" {
		return "", 0, at
	}
	switch first := s.text[0]; first {
	case ';', '{', '}':
		s.take(1)
		return "", first, at
	case '"', '\'':
		return s.quoted(first), '"', at
	}
	var b strings.Builder
	for s.text != "" && !strings.ContainsRune(spaces+";", rune(s.text[0])) {
		switch {
		case s.text[0] == '\\' && len(s.text) > 1:
			b.WriteString(s.text[:2])
			s.take(2)
		case strings.HasPrefix(s.text, "${") && strings.Contains(s.text, "}"):
			end := strings.IndexByte(s.text, '}') + 1
			b.WriteString(s.text[:end])
			s.take(end)
		case s.text[0] == '{':
			return b.String(), '"', at
		default:
			b.WriteByte(s.text[0])
			s.take(1)
		}
	}
	return b.String(), '"', at
}

func (s *scanner) quoted(quote byte) string {
	at := s.here
	var b strings.Builder
	for s.take(1); s.text != "" && s.text[0] != quote; s.take(1) {
		if s.text[0] == '\\' && len(s.text) > 1 {
			if next := s.text[1]; next != quote && next != '\\' {
				b.WriteByte('\\')
			}
			s.take(1)
		}
		b.WriteByte(s.text[0])
	}
	if s.text == "" {
		s.c.fail(at, "the text has no %c at its end", quote)
		return ""
	}
	s.take(1)
	return b.String()
}

// block reads directives up to the end of a block, or of the file.
func (s *scanner) block(depth int) (all []*directive) {
	for s.c.err == nil {
		text, mark, at := s.word()
		switch mark {
		case 0:
			if depth > 0 {
				s.c.fail(at, "a block has no } at its end")
			}
			return all
		case '}':
			if depth == 0 {
				s.c.fail(at, "there is no block to end")
			}
			return all
		case '{', ';':
			s.c.fail(at, "want the name of a directive, got %c", mark)
			return all
		}
		d := &directive{at: at, name: text}
		all = append(all, d)
		s.rest(d, depth)
	}
	return all
}

// rest reads the part of a directive after its name.
func (s *scanner) rest(d *directive, depth int) {
	for {
		text, mark, at := s.word()
		switch mark {
		case '"':
			d.args = append(d.args, text)
			continue
		case ';':
		case '{':
			if depth == maxNested {
				s.c.fail(at, "want blocks at most %d deep", maxNested)
			} else if strings.HasSuffix(d.name, "_by_lua_block") {
				s.skip(at)
			} else {
				d.block = s.block(depth + 1)
			}
		default:
			s.c.fail(at, "the directive %.40s has neither ; nor { at its end", d.name)
		}
		return
	}
}

// skip skips a program up to the brace that ends it.
func (s *scanner) skip(at place) {
	for open := 1; open > 0; {
		next := strings.IndexAny(s.text, "{}")
		if next < 0 {
			s.c.fail(at, "a block has no } at its end")
			return
		}
		if open++; s.text[next] == '}' {
			open -= 2
		}
		s.take(next + 1)
	}
}

// nginxPart is a part of a file: nginx -T prints all files, each after its name.
type nginxPart struct {
	name     string
	block    []*directive
	included bool
}

const dumped = "# configuration file "

func (c *converter) nginxParts() (parts []*nginxPart) {
	for _, f := range c.files {
		s := scanner{c, string(f.Text), place{f.Name, 1, 1}}
		name, rest := f.Name, s.text
		for rest != "" && c.err == nil {
			// A part ends before the next file of a dump.
			end := len(rest)
			if strings.HasPrefix(rest, dumped) {
				line, _, _ := strings.Cut(rest[len(dumped):], "\n")
				name = strings.TrimSuffix(strings.TrimSpace(line), ":")
			}
			if next := strings.Index(rest, "\n"+dumped); next >= 0 {
				end = next + 1
			}
			s.text, rest = rest[:end], rest[end:]
			parts = append(parts, &nginxPart{name: name, block: s.block(0)})
		}
	}
	return parts
}

// harmless are files of nginx's packages that limit nothing.
var harmless = []string{"mime.types", "*_params", "fastcgi.conf", "koi-*", "win-utf"}

// include replaces each include of a block by the files that it names. within are the parts that
// the block is in, which can't include themselves.
func (c *converter) include(block []*directive, parts, within []*nginxPart) (all []*directive) {
	for _, d := range block {
		if d.name != "include" || len(d.args) != 1 {
			d.block = c.include(d.block, parts, within)
			all = append(all, d)
			continue
		}
		found := strings.Contains(d.args[0], "modules") || len(parts) > len(c.files)
		for _, p := range parts {
			if slices.Contains(within, p) || !fits(d.args[0], p.name) {
				continue
			}
			p.included, found = true, true
			all = append(all, c.include(c.copied(d.at, p.block), parts, append(slices.Clone(within), p))...)
		}
		for _, pattern := range harmless {
			fits, err := path.Match(pattern, path.Base(d.args[0]))
			found = found || fits && err == nil
		}
		if !found {
			c.lose(d.at, "%.80s was not read: give it as another FILE, or convert the output of nginx -T", d.args[0])
		}
	}
	return all
}

// copied copies the directives that include may change.
func (c *converter) copied(at place, block []*directive) (all []*directive) {
	if c.values += len(block) + 1; c.values > maxValues {
		c.fail(at, "want at most %d directives, counted again for each include", maxValues)
		return nil
	}
	for i := range block {
		d := *block[i]
		d.block = c.copied(at, d.block)
		all = append(all, &d)
	}
	return all
}

// fits reports whether a pattern of include names a file, which may be in another folder here.
func fits(pattern, name string) bool {
	if ok, err := path.Match(pattern, name); ok && err == nil {
		return true
	}
	// Compare only the last parts, up to the number that both have.
	want, has := strings.Split(strings.TrimPrefix(pattern, "/"), "/"), strings.Split(strings.TrimPrefix(name, "/"), "/")
	n := min(len(want), len(has))
	ok, err := path.Match(strings.Join(want[len(want)-n:], "/"), strings.Join(has[len(has)-n:], "/"))
	return ok && err == nil
}
