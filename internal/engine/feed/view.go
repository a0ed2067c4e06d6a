package feed

// AskAtOnce makes the worker ask at the next tick for the list that it wants. It is for tests.
func (v *Feed) AskAtOnce() { v.news.asksAt = 0 }
