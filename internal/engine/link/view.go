package link

// View is what tests of the engine see of a link.
type View struct {
	Peak    uint64 // the most nodes known of while hits that passed without the backend counted
	AloneAt int64  // when a request last passed without the backend; 0 for never
}

// View returns what the worker knows.
func (l *Link) View() View { return View{uint64(l.shared.peak), l.shared.aloneAt} }

// Shift moves the backend's clock, as the worker knows it. It is for tests.
func (l *Link) Shift(by int64) { l.offset += by }
