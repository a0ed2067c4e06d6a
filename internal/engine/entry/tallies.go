package entry

// Tallies count a node's own work since it was made. They never decrease.
type Tallies struct {
	LostRaces uint64 // compare-and-sets that failed because another worker was faster
	GivenUp   uint64 // decisions whose hits lost every race, and are added later
	Lost      uint64 // hits that could not be kept, or that the backend has refused
	Evicted   uint64 // counters that were evicted before they expired
	Corrupt   uint64 // pages or entries with an invalid form
	Pushed    uint64 // hits that were sent to the backend
	Failed    uint64 // pushes that the backend did not accept, and that are repeated
	Waited    uint64 // requests that waited for the backend
	Alone     uint64 // requests decided without the backend because it was away or too many waited
	Crowded   uint64 // requests that did not wait for the backend because too many did
	Delayed   uint64 // requests that waited for room
	Blocked   uint64 // keys that were blocked after a refusal
	Advanced  uint64 // hits that passed before the backend had counted them
	Late      uint64 // requests that waited for the backend in vain, and were decided without it
}
