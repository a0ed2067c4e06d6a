package config

import (
	"strconv"

	"weir/internal/wire"
)

const (
	// maxClasses bounds the classes of a rule: each has a counter or two.
	maxClasses = 16
	// partsOfClass is the most counters that a request asks the backend for in place of one.
	partsOfClass = 3
)

var (
	classesFields = []field{{"by", required}, {"of", required}, {"fair", optional}}
	classFields   = []field{{"guaranteed", optional}, {"most", optional}}
)

// Classes share a rule's limits.
type Classes struct {
	// By selects the name of a request's class. A request of none has what no class is guaranteed.
	By Selector
	// Of has 1 to 16 classes, in the order of their names.
	Of []Class
	// Fair has the values of the key's last selector share evenly what their class has.
	Fair bool
}

// Fair reports whether the values of the key's last selector share evenly. Its counters have an empty value in
// the place of these.
//
//go:noinline
func (r *Rule) Fair() bool { return r.Classes != nil && r.Classes.Fair }

// Parts returns the values that the keys of the parts' counters end with: the pool's, which is empty, each class's, and, of
// those with a bound, that of what they have of the pool.
func (c *Classes) Parts() []string {
	parts := []string{""}
	for _, of := range c.Of {
		if parts = append(parts, of.Name); of.Most < 1000 {
			parts = append(parts, of.Name+"+")
		}
	}
	return parts
}

// Class has its shares of each limit in thousandths: Guaranteed is its own, and all of them are at most
// 1000. Most bounds all that it has, and is at least Guaranteed.
type Class struct {
	Name             string
	Guaranteed, Most uint16
}

// readClasses reads a rule's classes after all other fields.
func readClasses(v *value, rule *Rule) {
	c := &Classes{}
	sum := 0
	v.object(`{"by": {"header": "x-class"}, "of": {"interactive": {"guaranteed": 0.6}}}`, classesFields, func(name string, v *value) {
		switch name {
		case "by":
			c.By = readKeySelector(v, groupField)
			return
		case "fair":
			c.Fair = v.boolean()
			return
		}
		if !v.isObject(`{"interactive": {"guaranteed": 0.6}}`) {
			return
		}
		v.each("classes", 1, maxClasses, func(v *value) {
			class := readClass(v)
			for i := range c.Of {
				if c.Of[i].Name == class.Name {
					v.givenTwice()
				}
			}
			c.Of = append(c.Of, class)
			for i := len(c.Of) - 1; i > 0 && c.Of[i].Name < c.Of[i-1].Name; i-- {
				c.Of[i], c.Of[i-1] = c.Of[i-1], c.Of[i]
			}
			if sum += int(class.Guaranteed); sum > 1000 && sum-int(class.Guaranteed) <= 1000 {
				v.fail("want guaranteed shares of at most 1 in sum, got " + formatShare(sum) + " up to this class")
			}
		})
	})
	rule.Classes = c
	if len(rule.Key) == maxKey {
		v.fail("want at most " + strconv.Itoa(maxKey-1) + " selectors in the key of a rule with classes, which are a part of it")
	}
	for _, other := range []struct {
		given bool
		field string
		why   string
	}{
		{rule.CountRejected, "count_rejected", "a refused request has no part to count in"},
		{rule.Marks, `on_full "mark"`, "a request would be marked that has room in its class"},
		{rule.Block != 0, "block", "one class would block another"},
		{rule.Queue != 0, "delay", "a request that waits in a line could miss room in its class"},
		{rule.Cut, "cut", "a stream would end although its class has room"},
		{len(rule.WarnAt) > 0, "warn_at", "a part that is used up says nothing of the limit"},
		{rule.Upstream, "upstream", "one class would hold back another"},
		{rule.LimitTokens, "limit_tokens", "a request may have its own part and the pool"},
		{rule.Hold != 0, `"in_flight"`, "its places are counted by key"},
	} {
		if other.given {
			v.fail("want no " + other.field + " with classes, because " + other.why)
		}
	}
	switch {
	case !c.Fair:
	case len(rule.Key) == 0:
		v.fail(`want a key with "fair": true, whose last selector names who shares`)
	case len(rule.Limits) != 1 || rule.Limits[0].Kind.Started() || rule.Limits[0].Calendar != nil:
		v.fail(`want one limit, and no "token_bucket", "first_hit" or calendar window, with "fair": true, because all keys need the same windows`)
	}
	for i := range rule.Overrides.Keys {
		if key := rule.Overrides.Keys[i].Key; c.Fair && len(key) > 0 && key[len(key)-1] != "" {
			v.fail(`want "" as the last value of each key in overrides with "fair": true, as keys share the limits`)
			break
		}
	}
}

func readClass(v *value) Class {
	class := Class{Name: v.name, Most: 1000}
	if !wire.IsName(class.Name) {
		v.fail("want the name of a class, 1 to 64 of A-Za-z0-9_-")
	}
	var most *value
	v.object(`{"guaranteed": 0.6, "most": 0.8}`, classFields, func(name string, v *value) {
		if name == "guaranteed" {
			class.Guaranteed = readShare(v, 1000)
			return
		}
		most = v
		class.Most = readShare(v, 1000)
	})
	if most.given() && class.Most != 0 && class.Most < class.Guaranteed {
		most.wrong("a share of at least guaranteed, " + formatShare(int(class.Guaranteed)))
	}
	return class
}

// formatShare writes thousandths.
func formatShare(thousandths int) string {
	digits := strconv.Itoa(1000 + thousandths%1000)[1:]
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	return strconv.Itoa(thousandths/1000) + "." + digits
}
