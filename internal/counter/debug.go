package counter

import "fmt"

func Debug(c *Counter, now int64) string {
	if len(c.States) == 0 {
		return "-"
	}
	s := &c.States[0]
	l := &c.rule.Limits[0]
	f, _ := l.FitsAt(s, 1)
	return fmt.Sprintf("L%d R%d T%d D%d F%d dry%d ref%d pace%d fits%d heard%.3f", c.Leased(), l.Remaining(s), s.Hits[0].Total, s.Hits[0].Diff, s.Hits[0].Flight, c.dryFor(now)/1e6, c.lease.Refused, c.lease.Pace, (f-now)/1e6, -float64(c.sync.Heard.In(now))/1e9)
}
