package usage

// Anthropic's answers list the rounds that a request took (https://platform.claude.com/docs/en/build-with-claude/compaction).
// The numbers beside the list are the sum of the rounds that answered. So rounds of those kinds do not
// count, also where a model has declined and another has answered. The others are added: those that
// made the conversation shorter, and those of an advisor.

const iterations = "iterations"

// iteration has the numbers of a round, and the sums of those that are added.
type iteration struct {
	numbers, sums [len(iterated)]uint64
	added         bool
}

// iterated are the names of a round's numbers, in the order of the members that take their sums.
var iterated = [...]string{
	iterations + ".input_tokens", iterations + ".output_tokens", iterations + ".cache_read_input_tokens", iterations + ".cache_creation_input_tokens",
}

func (n *iteration) begin() { n.numbers, n.added = [len(iterated)]uint64{}, false }

// read reads a member of a round.
func (n *iteration) read(path, value []byte) {
	if string(path) == iterations+".type" {
		n.added = string(value) == "compaction" || string(value) == "advisor_message"
		return
	}
	for i, name := range iterated {
		if string(path) == name {
			n.numbers[i], _ = count(value)
			return
		}
	}
}

// takeIteration takes a round at its end.
func (r *Reader) takeIteration(o *object) {
	n := &o.iteration
	if !n.added {
		return
	}
	for i, hits := range n.numbers {
		n.sums[i] = min(n.sums[i]+hits, Most+1)
		r.note(iteratedMember+i, n.sums[i], n.sums[i] <= Most)
	}
}
