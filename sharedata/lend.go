package sharedata

// Borrow is [Table.Read] without a copy if the table is in a [Map] of which the table's only worker says
// that it lends: see [Options.Lends]. Then what the caller changes in the slot's payload is changed in the
// table at once. So it changes nothing, or writes the slot before the table is used again.
func (t *Table) Borrow(s *Slot, a Address) (found bool) {
	if t.lends == nil {
		return t.Read(s, a)
	}
	s.locate(t, a)
	s.recalled = false
	number := t.page(a)
	v := t.lent[number]
	if v == nil {
		if v = t.lends.values[string(s.name)]; v == nil {
			return t.Read(s, a)
		}
		t.lent[number] = v
	}
	s.own, s.lent = s.page, v
	s.page, s.cas = v.value, v.cas
	return s.find()
}

// giveBack returns a lent page without a copy.
func (s *Slot) giveBack() {
	if s.lent != nil {
		s.page, s.own, s.lent = s.own, nil, nil
	}
}

// changed says of a lent page that it was changed where it is, and reports whether it is one.
func (s *Slot) changed() (lent bool) {
	v := s.lent
	if v == nil {
		return false
	}
	m := s.table.lends
	m.bytes += len(s.page) - len(v.value)
	v.value, v.cas = s.page, m.Numbers.next()
	return true
}
