package feed

// Hurry makes the worker ask at once for the list that it wants. It is for tests.
func (v *Feed) Hurry() { v.news.asksAt = 0 }
