package entry

import "weir/internal/engine/rule"

// Remembers reports whether the refusal of a check's key is remembered. It is for tests.
func (k *Entries) Remembers(d *rule.Check, now int64) bool { return k.refusals.find(d, now) != nil }
