package pattern

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// mistake is an error such as "a ) at byte 3 that closes nothing".
type mistake struct {
	_ [0]func() // keeps Go from generating an equality function

	what string
	at   int // counted from 0; -1 stands for the whole expression
	why  string
}

// Error counts bytes from 1.
func (m *mistake) Error() string {
	if m.at < 0 {
		return m.what
	}
	return m.what + " at byte " + strconv.Itoa(m.at+1) + m.why
}

const (
	ignoreCase = 1 << iota
	multiLine
	dotAll
	ungreedy // changes which of several matches is taken, and not whether there is a match
)

// compiler builds a program while it reads the expression. Compiled code continues with the code
// after it, and repetitions copy it.
type compiler struct {
	expr    string
	at      int
	flags   uint8
	depth   int
	code    []instruction
	classes []class
	err     *mistake
	// marks says that groups are marked in the code, and groups is how many there are.
	marks  bool
	groups int
}

// Compile returns a pattern for an expression of at most MaxExpression bytes. An error is a phrase
// such as "a ) at byte 3 that closes nothing", which fits after "want a regular expression, got".
// It counts bytes from 1.
func Compile(expr string) (*Pattern, error) {
	p, _, err := compile(expr, false)
	if err != nil {
		return nil, err
	}
	if !p.literal {
		p.prepare()
	}
	return p, nil
}

// compile returns a pattern without its cache, and its number of groups. With marks, these are marked.
func compile(expr string, marks bool) (p *Pattern, groups int, err error) {
	c := compiler{expr: expr, marks: marks}
	if len(expr) > MaxExpression {
		return nil, 0, &mistake{what: "more than " + strconv.Itoa(MaxExpression) + " bytes", at: -1}
	}
	c.alternatives()
	if c.at < len(expr) {
		c.fail(c.at, "a )", " that closes nothing")
	}
	c.emit(match, 0)
	if c.err != nil {
		return nil, 0, c.err
	}
	p = &Pattern{
		program: c.link(),
		classes: c.classes,
		now:     make([]uint16, 0, len(c.code)),
		then:    make([]uint16, 0, len(c.code)),
		stack:   make([]uint16, 0, len(c.code)),
		marks:   make([]uint32, len(c.code)),
	}
	p.findPrefix()
	return p, c.groups, nil
}

// fail records the first mistake, and skips to the end of the expression, so that all callers
// return.
//
//go:noinline
func (c *compiler) fail(at int, what, why string) {
	if c.err == nil {
		c.err = &mistake{what: what, at: at, why: why}
	}
	c.at = len(c.expr)
}

// rest returns the part of the expression that is still unread.
func (c *compiler) rest() string { return c.expr[c.at:] }

// next reads text if the rest begins with it.
//
//go:noinline
func (c *compiler) next(text string) bool {
	if strings.HasPrefix(c.rest(), text) {
		c.at += len(text)
		return true
	}
	return false
}

// character reads one character.
//
//go:noinline
func (c *compiler) character() rune {
	r, width := utf8.DecodeRuneInString(c.rest())
	if r == utf8.RuneError && width <= 1 {
		c.fail(c.at, "a character", " that is not UTF-8")
		return 0
	}
	c.at += width
	return r
}

//go:noinline
func (c *compiler) emit(op operation, x int32) {
	if len(c.code) == MaxProgram {
		c.tooLarge(c.at)
		return
	}
	c.code = append(c.code, instruction{op: op, x: x})
}

func (c *compiler) tooLarge(at int) {
	c.fail(min(at, len(c.expr)-1), "something", " that makes the program larger than "+strconv.Itoa(MaxProgram)+" instructions")
}

// alternatives compiles up to the end of a group or of the expression.
func (c *compiler) alternatives() {
	start, end := len(c.code), -1
	for {
		c.sequence()
		if end >= 0 {
			c.code[end].x = int32(len(c.code) - end)
		}
		if !c.next("|") {
			return
		}
		// All code before is one alternative, and the rest is the other.
		c.emit(jump, 0)
		c.emit(fork, int32(len(c.code)-start+1))
		if c.err != nil {
			return
		}
		end = len(c.code) - 1
		first := c.code[end]
		copy(c.code[start+1:], c.code[start:end])
		c.code[start] = first
	}
}

// sequence compiles up to the end of an alternative.
func (c *compiler) sequence() {
	item := -1 // where the code begins that a repetition would repeat
	again := false
	for c.at < len(c.expr) {
		at, repeat := c.at, false
		switch c.expr[c.at] {
		case '|', ')':
			return
		case '*', '+', '?', '{':
			least, most, ok := c.count()
			if !ok {
				item = len(c.code)
				c.literal('{', at)
				break
			}
			if c.next("?") && c.marks || c.marks && c.flags&ungreedy != 0 { // it matches the same texts
				c.fail(at, "a lazy "+c.expr[at:c.at], ", which takes another part of some texts")
				return
			}
			switch what := c.expr[at:c.at]; {
			case item < 0:
				c.fail(at, "a "+what, " with nothing to repeat")
			case again:
				c.fail(at, "a "+what, " that repeats a repetition")
			case max(least, most) > MaxRepeat:
				c.fail(at, "a "+what, " that repeats more than "+strconv.Itoa(MaxRepeat)+" times")
			case most >= 0 && least > most:
				c.fail(at, "a "+what, " whose ends are the wrong way round")
			default:
				c.repeat(item, least, most, at)
			}
			repeat = true
		case '(':
			start := len(c.code)
			if c.group() {
				item = start
			}
		case '[':
			item = len(c.code)
			c.bracket()
		case '^':
			item = c.assert(1, pick(c.flags&multiLine != 0, beginLine, beginText))
		case '$':
			item = c.assert(1, pick(c.flags&multiLine != 0, endLine, endText))
		case '.':
			c.at++
			item = len(c.code)
			ranges := []span{{0, utf8.MaxRune}}
			if c.flags&dotAll == 0 {
				ranges = []span{{0, '\n' - 1}, {'\n' + 1, utf8.MaxRune}}
			}
			c.class(ranges)
		case '\\':
			item = c.escaped(item)
		default:
			item = len(c.code)
			c.literal(c.character(), at)
		}
		again = repeat
	}
}

func pick(which bool, yes, no assertion) assertion {
	if which {
		return yes
	}
	return no
}

func (c *compiler) assert(length int, a assertion) (item int) {
	c.at += length
	c.emit(assert, a)
	return len(c.code) - 1
}

// count reads the counts of a repetition; a most of -1 is no bound. Text that is no repetition,
// such as {a}, is an ordinary character: count then reads only its first byte.
func (c *compiler) count() (least, most int, ok bool) {
	c.at++
	switch c.expr[c.at-1] {
	case '*':
		return 0, -1, true
	case '+':
		return 1, -1, true
	case '?':
		return 0, 1, true
	}
	start := c.at
	least, ok = c.integer()
	most = least
	if ok && c.next(",") {
		if c.next("}") {
			return least, -1, true
		}
		most, ok = c.integer()
	}
	if ok && c.next("}") {
		return least, most, true
	}
	c.at = start
	return 0, 0, false
}

// integer reads a count. All counts above MaxRepeat become MaxRepeat+1.
func (c *compiler) integer() (n int, ok bool) {
	start := c.at
	for c.at < len(c.expr) && '0' <= c.expr[c.at] && c.expr[c.at] <= '9' {
		n = min(10*n+int(c.expr[c.at]-'0'), MaxRepeat+1)
		c.at++
	}
	digits := c.at - start
	return n, digits == 1 || digits > 1 && c.expr[start] != '0'
}

// repeat replaces the code from start on by code that runs it several times.
func (c *compiler) repeat(start, least, most, at int) {
	length := len(c.code) - start
	size := start + least*length + 2 // a loop adds at most two instructions to the code itself
	if most < 0 {
		size += length
	} else {
		size += (most - least) * (length + 1)
	}
	if size > MaxProgram {
		c.tooLarge(at)
		return
	}
	once := append([]instruction(nil), c.code[start:]...)
	c.code = c.code[:start]
	for range least {
		c.code = append(c.code, once...)
	}
	if most < 0 && least > 0 {
		if c.emit(fork, int32(-length)); c.err == nil {
			c.code[len(c.code)-1].again = true
		}
		return
	}
	times, after := most-least, 0
	if most < 0 {
		times, after = 1, 1 // for the jump back
	}
	// Each optional time leaves for the end, and not for the next time. So a run of characters has
	// a single place in the program, and not a place for each way to leave some out.
	last := len(c.code) + times*(length+1) + after
	for range times {
		c.emit(fork, int32(last-len(c.code)))
		c.code = append(c.code, once...)
	}
	if after > 0 {
		c.emit(jump, int32(-length-1))
	}
}

// group compiles a group. It reports false for flags alone, which can't be repeated.
func (c *compiler) group() bool {
	start, outside := c.at, c.flags
	c.at++
	captures := true
	if c.next("?") {
		if captures = c.next("P<") || c.next("<"); captures {
			c.at = start + 2
		}
		if !c.opening(start) {
			return false
		}
	}
	if captures = captures && c.marks; captures {
		c.groups++
		c.emit(assert, beginGroup)
	}
	if c.depth == MaxDepth {
		c.fail(start, "a group", " in more than "+strconv.Itoa(MaxDepth)+" others")
	}
	c.depth++
	c.alternatives()
	c.depth--
	if !c.next(")") {
		c.fail(start, "a (", " that is not closed")
	}
	if captures {
		c.emit(assert, endGroup)
	}
	c.flags = outside
	return true
}

// opening reads the text after "(?" up to the content of a group. It reports false if there is no
// group but flags, or a mistake.
func (c *compiler) opening(start int) (group bool) {
	for _, lookaround := range [...]string{"=", "!", "<=", "<!"} {
		if c.next(lookaround) {
			c.fail(start, "lookaround", ", which RE2 does not have")
			return false
		}
	}
	if c.next("P<") || c.next("<") {
		name := c.at
		for c.at < len(c.expr) && isWord(c.expr[c.at]) {
			c.at++
		}
		if c.at == name || !c.next(">") {
			c.fail(start, "a group", " whose name is not made of letters, digits and _, in < and >")
			return false
		}
		return true
	}
	flags, unset, given := c.flags, false, true
	for c.at < len(c.expr) {
		flag := c.expr[c.at]
		c.at++
		i := strings.IndexByte("imsU", flag)
		switch {
		case i >= 0:
			given = true
			if flags |= 1 << i; unset {
				flags ^= 1 << i
			}
		case flag == '-' && !unset:
			unset, given = true, false
		case (flag == ':' || flag == ')') && given:
			c.flags = flags
			return flag == ':'
		default:
			c.fail(start, "a (?", " with neither flags of i, m, s and U, nor a name, nor a :")
			return false
		}
	}
	c.fail(start, "a (", " that is not closed")
	return false
}

// escaped compiles a part that begins with a \. It returns the start of the code that a repetition
// after it would repeat. After \Q\E that is the code before.
func (c *compiler) escaped(item int) int {
	if c.next(`\Q`) {
		for c.at < len(c.expr) && !c.next(`\E`) {
			at := c.at
			item = len(c.code)
			c.literal(c.character(), at)
		}
		return item
	}
	if rest := c.rest(); len(rest) > 1 {
		if a := strings.IndexByte(assertions, rest[1]); a >= 0 {
			return c.assert(2, assertion(a))
		}
	}
	item = len(c.code)
	at := c.at
	if ranges, ok := c.perl(nil); ok {
		c.class(ranges)
	} else {
		c.literal(c.escape(), at)
	}
	return item
}

// perl adds a class such as \d, if the rest begins with it.
func (c *compiler) perl(ranges []span) (all []span, ok bool) {
	rest := c.rest()
	if len(rest) < 2 || rest[0] != '\\' || !isAlphanumeric(rest[1]) {
		return ranges, false
	}
	name := string(rest[1] | 0x20)
	pairs := find(name)
	if pairs == "" {
		return ranges, false
	}
	c.at += 2
	return c.add(ranges, pairs, name[0] != rest[1]), true
}

// add adds a named class.
func (c *compiler) add(ranges []span, pairs string, negated bool) []span {
	if !negated {
		for i := 0; i < len(pairs); i += 2 {
			ranges = c.span(ranges, span{rune(pairs[i]), rune(pairs[i+1])}, c.at)
		}
		return ranges
	}
	for _, s := range negate(c.add(nil, pairs, false)) {
		ranges = insert(ranges, s)
	}
	return ranges
}

// span adds a range, in all cases if the flags ignore case.
func (c *compiler) span(ranges []span, s span, at int) []span {
	if c.flags&ignoreCase == 0 {
		return insert(ranges, s)
	}
	ranges, ok := insertFolded(ranges, s)
	if !ok {
		c.fail(at, "a character beyond ASCII", " where case is ignored, which is not supported")
	}
	return ranges
}

// escape reads a character that is written with a \.
func (c *compiler) escape() rune {
	start := c.at
	c.at++
	if c.at == len(c.expr) {
		c.fail(start, `a \`, " that nothing follows")
		return 0
	}
	escaped := c.character()
	switch {
	case escaped >= utf8.RuneSelf:
	case !isAlphanumeric(byte(escaped)):
		return escaped
	case '0' <= escaped && escaped <= '7':
		if r := c.octal(escaped - '0'); escaped == '0' || c.at-start > 2 {
			return r
		}
	case escaped == 'x':
		if r, ok := c.hexadecimal(); ok {
			// Package regexp takes it for U+FFFD in some places, and RE2 for bytes that are not
			// UTF-8.
			if 0xd800 <= r && r <= 0xdfff {
				c.fail(start, "a surrogate", ", which no text has")
			}
			return r
		}
		c.fail(start, `a \x`, ` that is neither \x7F nor \x{10FFFF}`)
	default:
		if i := strings.IndexByte("afnrtv", byte(escaped)); i >= 0 {
			return rune("\a\f\n\r\t\v"[i])
		}
	}
	switch what := c.expr[start:c.at]; what {
	case `\p`, `\P`:
		c.fail(start, what, ", a class of Unicode, which is not supported")
	case `\C`:
		c.fail(start, what, ", a byte of a character, which is not supported")
	case `\1`, `\2`, `\3`, `\4`, `\5`, `\6`, `\7`, `\8`, `\9`:
		c.fail(start, what, ", a backreference, which RE2 does not have")
	default:
		c.fail(start, what, ", which is no escape")
	}
	return 0
}

// octal reads up to two more digits.
func (c *compiler) octal(r rune) rune {
	for range 2 {
		if c.at == len(c.expr) || c.expr[c.at] < '0' || '7' < c.expr[c.at] {
			break
		}
		r = r<<3 | rune(c.expr[c.at]-'0')
		c.at++
	}
	return r
}

// hexadecimal reads two digits, or any number of digits in braces.
func (c *compiler) hexadecimal() (r rune, ok bool) {
	braces := c.next("{")
	for digits := 0; c.at < len(c.expr); digits++ {
		if braces && digits > 0 && c.next("}") {
			return r, true
		}
		digit := hexDigit(c.expr[c.at])
		if digit < 0 {
			break
		}
		c.at++
		if r = r<<4 | digit; r > utf8.MaxRune {
			break
		}
		if !braces && digits == 1 {
			return r, true
		}
	}
	return 0, false
}

func hexDigit(c byte) rune {
	switch lower := c | 0x20; {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= lower && lower <= 'f':
		return rune(lower-'a') + 10
	}
	return -1
}

func (c *compiler) bracket() {
	start := c.at
	c.at++
	negated := c.next("^")
	var ranges []span
	for first := true; ; first = false {
		if c.at >= len(c.expr) {
			c.fail(start, "a [", " that is not closed")
			return
		}
		if !first && c.next("]") {
			break
		}
		ranges = c.member(ranges)
	}
	if negated {
		ranges = negate(ranges)
	}
	c.class(ranges)
}

// member adds a character, a range or a class to a class in brackets.
func (c *compiler) member(ranges []span) []span {
	if rest := c.rest(); strings.HasPrefix(rest, "[:") {
		if end := strings.Index(rest[2:], ":]"); end >= 0 {
			name := rest[2 : end+2]
			negated := name != "" && name[0] == '^'
			if negated {
				name = name[1:]
			}
			pairs := ""
			if len(name) > 1 {
				pairs = find(name)
			}
			if pairs == "" {
				c.fail(c.at, "a [:name:]", " whose name is not that of a class")
				return ranges
			}
			c.at += end + 4
			return c.add(ranges, pairs, negated)
		}
	}
	if all, ok := c.perl(ranges); ok {
		return all
	}
	at := c.at
	s := span{low: c.end()}
	s.high = s.low
	if rest := c.rest(); len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
		c.at++
		s.high = c.end()
	}
	if s.high < s.low {
		c.fail(at, "a range", " whose ends are the wrong way round")
	}
	return c.span(ranges, s, at)
}

// end reads an end of a range.
func (c *compiler) end() rune {
	if c.expr[c.at] == '\\' {
		return c.escape()
	}
	return c.character()
}

// literal compiles a character, in all cases if the flags ignore case.
func (c *compiler) literal(r rune, at int) {
	if c.err != nil {
		return
	}
	if c.flags&ignoreCase == 0 {
		c.emit(takeRune, r)
		return
	}
	ranges := c.span(nil, span{r, r}, at)
	if len(ranges) == 1 && ranges[0].low == ranges[0].high {
		c.emit(takeRune, r)
		return
	}
	c.class(ranges)
}

func (c *compiler) class(ranges []span) {
	if c.err != nil {
		return
	}
	c.emit(takeClass, int32(len(c.classes)))
	c.classes = append(c.classes, newClass(ranges))
}

// link makes places absolute, and skips chains of jumps.
func (c *compiler) link() []instruction {
	for i := range c.code {
		in := &c.code[i]
		if in.op == fork || in.op == jump {
			in.x += int32(i)
		}
		in.y = uint16(i + 1)
	}
	// Each jump leads forwards, or back to a fork. So a chain of jumps ends.
	for i := range c.code {
		in := &c.code[i]
		for in.op != match && c.code[in.y].op == jump {
			in.y = uint16(c.code[in.y].x)
		}
		for in.op == fork && c.code[in.x].op == jump {
			in.x = c.code[in.x].x
		}
	}
	return c.code
}

// findPrefix finds the characters that each match begins with.
func (p *Pattern) findPrefix() {
	var prefix []byte
	for pc := uint16(0); ; pc = p.program[pc].y {
		in := &p.program[pc]
		// A byte that is not UTF-8 also matches U+FFFD.
		if in.op != takeRune || !utf8.ValidRune(in.x) || in.x == utf8.RuneError {
			p.start, p.literal = pc, in.op == match
			break
		}
		prefix = utf8.AppendRune(prefix, in.x)
	}
	p.prefix = string(prefix)
	for i := range p.program {
		p.asserts = p.asserts || p.program[i].op == assert
	}
}
