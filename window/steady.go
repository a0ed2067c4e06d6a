package window

// steadyWindows is how many windows [Steady] measures, after skipping the same number.
const steadyWindows = 100

// Steady is the share of a limit that a client gets if it never stops asking: 1 if it gets the
// full limit in each window. Steady decides hit by hit for about two hundred windows, so it is
// slow.
func Steady(l *Limit) float64 {
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
