package sharedata

import "encoding/binary"

// Find finds the namespace's table, and reports whether there is one. It is for readers only: to
// count, use Open.
func Find(data Data, namespace string) (t *Table, found bool) {
	t = newTable(data, namespace)
	value, _, found := data.Get(t.name[:len(t.name)-1], nil)
	return t, found && t.readHeader(value)
}

// Visit calls visit with the group and the payload of each unexpired entry. It reads page by page,
// while others may write. The payload is valid during the call.
func (t *Table) Visit(now int64, visit func(g Group, payload []byte)) {
	s := Slot{name: append(append([]byte(nil), t.name...), make([]byte, numberSize)...)}
	for number := range t.pages {
		putNumber(s.name, number)
		page, _, found := t.data.Get(s.name, s.page)
		if !found || len(page) == 0 || page[0] != Format {
			continue
		}
		s.page = page
		s.trim()
		for at := 1; at < len(s.page); at += s.length(at) {
			if binary.LittleEndian.Uint32(s.page[at+expiresAt:]) > expiry(now) {
				visit(s.group(at), s.page[at+payloadAt:at+s.length(at)])
			}
		}
	}
}
