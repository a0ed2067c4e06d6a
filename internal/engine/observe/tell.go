package observe

import (
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/wire"
)

// Teller is an owner of a node that knows what the keys of its rules are like.
type Teller interface {
	// KeyOf returns the form of a rule's key, as a wire.RuleShape has it, wire.Varies if some keys or
	// requests have other limits than the rule's, wire.Classes if classes share them, and wire.Fair if keys do so evenly.
	KeyOf(rule int) (key []byte, varies wire.RuleFlags)
}

// described is a calendar that can be made anew elsewhere.
type described interface{ Describe() string }

// telling has what a node tells the backend of its rules. Reports name it, and the backend asks for it
// if it does not know it yet.
type telling struct {
	_ [0]func() // keeps Go from generating an equality function

	owner         Teller // nil if nothing is known of keys
	configuration uint64
	// shadows says by rule whether it is one by its configuration: a rule that is moved at run time is told
	// as before.
	shadows []bool
	digest  uint64 // 0 before the first report
	// asked means that the backend has asked. told means that this worker has told its rules before.
	asked, told bool
}

// Answered takes in the outcome of a report. If the backend asks for the rules, the next report tells them: the first is made
// at once.
func (w *Observer) Answered(outcome link.Outcome, answer []byte) {
	if outcome != link.PushAnswered || string(answer) != wire.TellRules {
		return
	}
	if w.tells.asked = true; !w.tells.told {
		w.tells.told = true
		w.sightings.reportAt = w.link.HostNow()
	}
}

// tell says in a report which rules the node has, or names them. They never change.
func (w *Observer) tell(r *wire.Report) {
	t := &w.tells
	if t.digest == 0 || t.asked {
		told := wire.AppendTold(nil, t.configuration, w.shapes())
		if t.digest = wire.DigestOf(told); t.asked {
			r.Told, t.asked, w.sightings.idle = told, false, false
		}
	}
	r.Digest = t.digest
}

// shapes returns what there is to tell of the rules that have a name.
func (w *Observer) shapes() (all []wire.RuleShape) {
	for i := range w.rules.List {
		r := &w.rules.List[i]
		name := rule.NameOf(r)
		if len(name) == 0 {
			continue
		}
		s := wire.RuleShape{Name: string(name), Flags: wire.Varies | wire.AnyKey}
		if w.tells.owner != nil {
			s.Key, s.Flags = w.tells.owner.KeyOf(i)
		}
		if w.tells.shadows[i] {
			s.Flags |= wire.IsShadow
		}
		if !r.Synced() {
			s.Flags |= wire.Local
		}
		own := r.Own()
		s.Limits = make([]wire.ToldLimit, len(own))
		for j := range own {
			s.Limits[j].Limit = own[j]
			if c, ok := own[j].Calendar.(described); ok {
				s.Limits[j].Described = c.Describe()
			}
		}
		all = append(all, s)
	}
	return all
}
