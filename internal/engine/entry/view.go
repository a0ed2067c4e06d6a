package entry

import "weir/internal/wire"

// BlockKeys is how many keys a block of the list of dirty keys has. It is for tests.
const BlockKeys = dirtyBlockKeys

// Block is the block that the present visit of the list has come to. It is for tests.
func (k *Dirty) Block() int { return k.block }

// Each calls visit with the hits of evicted counters. It is for tests.
func (o *Orphans) Each(visit func(item *wire.Item)) {
	for i := range *o {
		visit(&(*o)[i].Item)
	}
}
