package config

const (
	maxDelay = 5 * 60 * Second
	maxQueue = 10_000
)

var delayFields = []field{{"most", required}, {"queue", required}}

// readDelay reads how requests wait for room.
func readDelay(v *value, rule *Rule) {
	v.object(`{"most": "2s", "queue": 100}`, delayFields, func(name string, v *value) {
		if name == "most" {
			rule.Delay = v.duration(Millisecond, maxDelay)
		} else {
			rule.Queue = int(v.integer(1, maxQueue))
		}
	})
}

// checkDelay reports fields that only make sense for a rule that refuses at once.
func checkDelay(v *value, rule *Rule) {
	switch {
	case rule.Block != 0:
		v.fail("want no block with it, because a request that waits is not refused")
	case rule.Marks:
		v.fail(`want on_full "refuse" with it, because a marked request does not wait`)
	case rule.CountRejected:
		v.fail("want no count_rejected with it, because a request that waits is not refused")
	}
}
