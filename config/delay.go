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

// checkDelay refuses what is for requests that are refused, where they wait.
func checkDelay(v *value, rule *Rule) {
	switch {
	case rule.Block != 0:
		v.fail("want no block beside it, as a request that waits is not refused")
	case rule.Marks:
		v.fail(`want on_full "refuse" beside it, as a marked request does not wait`)
	case rule.CountRejected:
		v.fail("want no count_rejected beside it, as a request that waits is not refused")
	}
}
