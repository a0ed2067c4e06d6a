package entry

import "weir/internal/engine/rule"

// Remembers reports whether the refusal of a check's key is remembered. It is for tests.
func (k *Entries) Remembers(d *rule.Check, now int64) bool { return k.refusals.find(d, now) != nil }

// BlockKeys is how many keys a block of the list of dirty keys has. It is for tests.
const BlockKeys = dirtyBlockKeys

// Orphans returns the hits of evicted counters that no push has. It is for tests.
func (k *Entries) Orphans() []Orphan { return k.orphans }
