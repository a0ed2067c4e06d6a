package proxywasm

import "github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

// contexts finds streams by the host's ids. Ids count upwards, so an open-addressed table without
// hashing has nearly all of them at their own place.
//
// The newest stream is kept apart. Between its creation and its request phase no other stream is
// created, and under low load most streams end before the next begins.
type contexts struct {
	newestID uint32 // 0 if there is none
	newest   types.HttpContext

	ids     []uint32 // 0, which is no stream's id, marks a free place
	streams []types.HttpContext
	used    int
}

const leastContexts = 64

// get returns nil for an unknown id.
func (c *contexts) get(id uint32) types.HttpContext {
	if id == c.newestID {
		return c.newest
	}
	return c.find(id)
}

func (c *contexts) find(id uint32) types.HttpContext {
	if len(c.ids) == 0 {
		return nil
	}
	mask := uint32(len(c.ids) - 1)
	for at := id & mask; c.ids[at] != 0; at = (at + 1) & mask {
		if c.ids[at] == id {
			return c.streams[at]
		}
	}
	return nil
}

func (c *contexts) put(id uint32, stream types.HttpContext) {
	if c.newestID != 0 && c.newestID != id {
		c.settle(c.newestID, c.newest)
	}
	c.newestID, c.newest = id, stream
}

// settle adds a stream to the table.
func (c *contexts) settle(id uint32, stream types.HttpContext) {
	if 2*(c.used+1) > len(c.ids) {
		c.grow()
	}
	mask := uint32(len(c.ids) - 1)
	at := id & mask
	for c.ids[at] != 0 && c.ids[at] != id {
		at = (at + 1) & mask
	}
	if c.ids[at] == 0 {
		c.used++
	}
	c.ids[at], c.streams[at] = id, stream
}

func (c *contexts) grow() {
	old := *c
	size := max(leastContexts, 2*len(old.ids))
	c.ids, c.streams, c.used = make([]uint32, size), make([]types.HttpContext, size), 0
	for at, id := range old.ids {
		if id != 0 {
			c.settle(id, old.streams[at])
		}
	}
}

func (c *contexts) remove(id uint32) {
	if id == c.newestID {
		c.newestID, c.newest = 0, nil
	} else {
		c.drop(id)
	}
}

// drop removes a stream and closes the gap, so that searches can stop at the first free place.
func (c *contexts) drop(id uint32) {
	if c.find(id) == nil {
		return
	}
	mask := uint32(len(c.ids) - 1)
	gap := id & mask
	for c.ids[gap] != id {
		gap = (gap + 1) & mask
	}
	for at := (gap + 1) & mask; c.ids[at] != 0; at = (at + 1) & mask {
		// An entry may fill the gap unless its own place lies after the gap.
		if home := c.ids[at] & mask; (at-home)&mask >= (at-gap)&mask {
			c.ids[gap], c.streams[gap] = c.ids[at], c.streams[at]
			gap = at
		}
	}
	c.ids[gap], c.streams[gap] = 0, nil
	c.used--
}
