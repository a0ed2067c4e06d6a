package server

import (
	"fmt"
	"testing"
	"time"
)

// Namespaces that were watched longest ago go when there are too many, when all have too many figures, and after an hour. That
// which is watched now stays.
func TestWatchedNamespaces(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var w watchedNamespaces
	for i := range maxWatched + 3 {
		w.of(fmt.Sprint(i), begin.Add(time.Duration(i)*time.Second))
	}
	if len(w.byName) != maxWatched || w.byName["2"] != nil || w.byName["3"] == nil {
		t.Errorf("%d are kept, want %d", len(w.byName), maxWatched)
	}
	for _, of := range w.byName {
		of.figures.Store(maxFigures / 10)
	}
	if w.of("3", begin.Add(time.Minute+10*time.Second)); len(w.byName) != 10 || w.byName["3"] == nil {
		t.Errorf("%d with too many figures are kept, want 10", len(w.byName))
	}
	if w.byName["3"].figures.Store(2 * maxFigures); w.of("3", begin.Add(2*time.Minute)) == nil || len(w.byName) != 1 {
		t.Errorf("%d are kept beside one that is too large", len(w.byName))
	}
	w.byName["3"].figures.Store(0)
	w.of("old", begin.Add(3*time.Minute))
	if w.of("3", begin.Add(2*time.Hour)); len(w.byName) != 1 {
		t.Errorf("%d are kept for more than an hour", len(w.byName))
	}
}
