package window

// steadyWindows is how many windows [Limit.Steady] looks at. It lets the same number pass before.
const steadyWindows = 100

// Steady is the share of the limit that passes of a client which never stops asking: 1 if that is
// the limit in each window. It decides some hundred windows, a hit at a time.
func (l *Limit) Steady() float64 {
	if l.Max == 0 {
		return 0
	}
	s, now, passed := State{}, steadyWindows*l.Width, uint64(0)
	start, end := now+steadyWindows*l.Width, now+2*steadyWindows*l.Width
	for now < end {
		l.Advance(&s, now)
		if l.Allows(&s, 1) {
			if l.Count(&s, 1); now >= start {
				passed++
			}
			continue
		}
		at, _ := l.FitsAt(&s, 1)
		now = max(at, now+1)
	}
	return float64(passed) / float64(l.Max) / steadyWindows
}
