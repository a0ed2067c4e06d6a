package wait

// alarms is a heap of times at which something is due, the earliest first.
type alarms struct{ list []*alarm }

// alarm is a time at which something is due. It is set while it is among alarms.
type alarm struct {
	of    *line
	at    int64
	index int // in the list, plus 1; 0 if not set
}

// earliest returns the alarm that is due first; nil if there is none.
func (h *alarms) earliest() *alarm {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// set sets or moves an alarm.
func (h *alarms) set(a *alarm, at int64) {
	if a.at = at; a.index == 0 {
		h.list = append(h.list, a)
		a.index = len(h.list)
	}
	h.settle(a.index - 1)
}

// stop removes an alarm, if it is set.
func (h *alarms) stop(a *alarm) {
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

func (h *alarms) put(i int, a *alarm) {
	h.list[i] = a
	a.index = i + 1
}

// settle moves the alarm at i to its place in the heap, which is otherwise in order.
func (h *alarms) settle(i int) {
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
