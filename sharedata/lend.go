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

// keep gives the slot a page of its own in place of one that was lent.
func (s *Slot) keep() {
	if s.lent != nil {
		s.page, s.own, s.lent = append(s.own[:0], s.page...), nil, nil
	}
}

// giveBack returns a lent page without a copy.
func (s *Slot) giveBack() {
	if s.lent != nil {
		s.page, s.own, s.lent = s.own, nil, nil
	}
}

// changed says of a lent page that its bytes were changed where they are, and reports whether it is one.
func (s *Slot) changed() (lent bool) {
	if s.lent == nil {
		return false
	}
	s.lent.cas = s.table.lends.Numbers.next()
	return true
}
