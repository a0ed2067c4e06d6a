package config

import (
	"weir/internal/calendar"
	"weir/window"
)

// dated has the fields of a limit with calendar windows.
type dated struct {
	period       calendar.Period
	window       *value // nil if the window is a duration
	zone, anchor *value
	day, hour    int
	dayGiven     *value
}

var anchorFields = []field{{"day", optional}, {"hour", optional}}

// readWindow reads a duration, or the name of a period.
func (d *dated) readWindow(v *value, limit *window.Limit) {
	if v.kind == kindString {
		if i := index(calendar.Periods, v.text); i >= 0 {
			d.window, d.period = v, calendar.Period(i)
			limit.Width = calendar.Lengths[i]
			return
		}
	}
	limit.Width = int64(v.duration(minWindow, maxWindow))
}

func (d *dated) readAnchor(v *value) {
	d.anchor = v
	v.object(`{"day": 15, "hour": 6}`, anchorFields, func(name string, v *value) {
		if name == "hour" {
			d.hour = int(v.integer(0, 23))
			return
		}
		d.dayGiven = v
		d.day = int(v.integer(1, 31))
	})
}

const wantZone = `the IANA name of a time zone such as "Europe/Berlin"`

// apply gives the limit its calendar, and checks the fields against each other.
func (d *dated) apply(limit *window.Limit) {
	if d.window == nil {
		for _, v := range []*value{d.zone, d.anchor} {
			if v.given() {
				v.fail(`field of windows "day", "week" and "month" only`)
			}
		}
		return
	}
	if limit.Kind != window.FixedWindow {
		d.window.fail(`want a duration such as "30s" or "1m": ` + d.window.text + ` is for "fixed_window" only, whose windows start by the clock`)
		return
	}
	zone := "UTC"
	if d.zone.given() {
		zone = d.zone.text
	}
	c, fault := calendar.New(d.period, zone, d.day, d.hour)
	switch {
	case fault == calendar.Sound:
		limit.Calendar = c
	case fault == calendar.UnknownZone && d.zone.given():
		d.zone.wrong(wantZone)
	case fault == calendar.WrongDay && d.period == calendar.Day:
		d.dayGiven.fail(`field of windows "week" and "month" only`)
	case fault == calendar.WrongDay:
		d.dayGiven.wrong("an integer from 1, Monday, to 7")
	}
}
