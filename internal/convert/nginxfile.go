package convert

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

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

func (d *directive) find(name string) (all []*directive) {
	for _, o := range d.block {
		if o.name == name {
			all = append(all, o)
		}
	}
	return all
}

// first returns the first of them, or an empty one.
func (d *directive) first(name string) *directive { return append(d.find(name), &directive{})[0] }

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
		case strings.HasPrefix(s.text, "${"):
			b.WriteString("${")
			s.take(2)
		case s.text[0] == '{':
			return b.String(), '"', at
		default:
			b.WriteString(s.character())
		}
	}
	return b.String(), '"', at
}

func (s *scanner) quoted(quote byte) string {
	at := s.here
	var b strings.Builder
	for s.take(1); s.text != "" && s.text[0] != quote; {
		b.WriteString(s.character())
	}
	if s.text == "" {
		s.c.fail(at, "the text has no %c at its end", quote)
		return ""
	}
	s.take(1)
	return b.String()
}

// character reads a character of a word, or one behind a backslash, which nginx keeps unless it knows the
// two.
func (s *scanner) character() (read string) {
	size := 1
	if read = s.text[:1]; read == `\` && len(s.text) > 1 {
		size = 2
		switch next := s.text[1]; next {
		case '"', '\'', '\\':
			read = string(next)
		case 't':
			read = "\t"
		case 'r':
			read = "\r"
		case 'n':
			read = "\n"
		default:
			_, width := utf8.DecodeRuneInString(s.text[1:])
			size = 1 + width
			read = s.text[:size]
		}
	} else if s.text[0] >= utf8.RuneSelf {
		_, size = utf8.DecodeRuneInString(s.text)
		read = s.text[:size]
	}
	s.take(size)
	return read
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

// skip skips a program of Lua up to the brace that ends it, as OpenResty does: braces in strings and
// comments do not count.
func (s *scanner) skip(at place) {
	for open := 1; open > 0; {
		next := strings.IndexAny(s.text, `{}"'[-`)
		if next < 0 {
			s.c.fail(at, "a block has no } at its end")
			return
		}
		s.take(next)
		switch mark := s.text[0]; {
		case mark == '"' || mark == '\'':
			s.quoted(mark)
			continue
		case strings.HasPrefix(s.text, "--"):
			if s.take(2); !s.longText() {
				end := strings.IndexByte(s.text+"\n", '\n')
				s.take(min(end, len(s.text)))
			}
			continue
		case mark == '[' && s.longText():
			continue
		case mark == '{':
			open++
		case mark == '}':
			open--
		}
		s.take(1)
	}
}

var longBracket = regexp.MustCompile(`^\[(=*)\[`)

// longText skips a text of Lua such as [==[ ]] ]==], if there is one.
func (s *scanner) longText() bool {
	found := longBracket.FindStringSubmatch(s.text)
	if found == nil {
		return false
	}
	end := "]" + found[1] + "]"
	at := strings.Index(s.text, end)
	if at < 0 {
		s.c.fail(s.here, "the text has no %s at its end", end)
		s.take(len(s.text))
		return true
	}
	s.take(at + len(end))
	return true
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
var harmless = []string{"mime.types", "fastcgi_params", "uwsgi_params", "scgi_params", "proxy_params", "fastcgi.conf", "fastcgi-php.conf", "koi-*", "win-utf", "options-ssl-nginx.conf"}

// include replaces each include of a block by the files that it names. within are the parts that
// the block is in, which can't include themselves.
func (c *converter) include(block []*directive, parts, within []*nginxPart) (all []*directive) {
	for _, d := range block {
		if d.name != "include" || len(d.args) != 1 {
			d.block = c.include(d.block, parts, within)
			all = append(all, d)
			continue
		}
		folder := path.Base(path.Dir(d.args[0]))
		found := folder == "modules" || folder == "modules-enabled" || len(parts) > len(c.files)
		for _, p := range parts {
			if slices.Contains(within, p) || !fits(d.args[0], p.name) {
				continue
			}
			p.included, found = true, true
			all = append(all, c.include(c.copied(d.at, p.block), parts, append(slices.Clone(within), p))...)
		}
		if !found && !fitsAny(path.Base(d.args[0]), harmless) {
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
