package node

// alarms are times that something is due at, with the earliest at hand: a heap.
type alarms[T any] struct{ list []*alarm[T] }

// alarm is when something is due. It is set if it is among alarms.
type alarm[T any] struct {
	of    T
	at    int64
	index int // in the list, plus 1
}

// earliest is the alarm that is due first; nil if there is none.
func (h *alarms[T]) earliest() *alarm[T] {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// set has an alarm due at a time, whether or not it was set.
func (h *alarms[T]) set(a *alarm[T], at int64) {
	if a.at = at; a.index == 0 {
		h.list = append(h.list, a)
		a.index = len(h.list)
	}
	h.settle(a.index - 1)
}

// stop has an alarm not be due any more.
func (h *alarms[T]) stop(a *alarm[T]) {
	if a.index == 0 {
		return
	}
	i, last := a.index-1, len(h.list)-1
	h.put(i, h.list[last])
	h.list[last] = nil
	h.list = h.list[:last]
	if a.index = 0; i < last {
		h.settle(i)
	}
}

func (h *alarms[T]) put(i int, a *alarm[T]) {
	h.list[i] = a
	a.index = i + 1
}

// settle moves the alarm at i to its place. All others are in order.
func (h *alarms[T]) settle(i int) {
	a := h.list[i]
	for i > 0 && a.at < h.list[(i-1)/2].at {
		h.put(i, h.list[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child+1 < len(h.list) && h.list[child+1].at < h.list[child].at {
			child++
		}
		if child >= len(h.list) || a.at <= h.list[child].at {
			break
		}
		h.put(i, h.list[child])
		i = child
	}
	h.put(i, a)
}
