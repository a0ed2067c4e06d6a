package check

import (
	"strconv"

	"weir/config"
)

// marking is a plugin that marks requests.
type marking struct {
	at      int
	config  *config.Config
	manager *node // whose filters it is one of, nil if that is unknown
	native  bool
}

// marks warns about plugins of which one takes away the marks of another, or hides them.
func (c *checker) marks(p *plugin, read *config.Config, document *node) {
	path := func(rule int) string { return "rules[" + strconv.Itoa(rule) + "].on_full" }
	first := -1
	names := map[string]int{}
	for i := range read.Rules {
		if rule := &read.Rules[i]; rule.Marks {
			if names[rule.Name] = i; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return
	}
	this := marking{p.document.from(locate(document, path(first))), read, p.filters.manager, p.native}
	warn := func(rule int, problem string) {
		c.add(mistake{p.document.from(locate(document, path(rule))), path(rule), problem}, true)
	}
	defer func() { c.marking = append(c.marking, this) }()
	for _, before := range c.marking {
		line, _ := c.places.position(before.at)
		switch {
		case this.manager == before.manager && this.manager != nil && this.native != before.native:
			if !read.TrustMarks {
				warn(first, "takes away the marks of the filter on line "+strconv.Itoa(line)+", as a native filter and one in wasm can't tell each other's from a client's: want trust_marks: true")
				return // once is enough
			}
		case this.manager == before.manager && this.manager != nil:
			for i := range before.config.Rules {
				rule := &before.config.Rules[i]
				if at, both := names[rule.Name]; both && rule.Marks {
					warn(at, "marks requests with the name of a rule on line "+strconv.Itoa(line)+": the upstream can't tell which of them had no room")
				}
			}
		case this.manager == nil && before.manager == nil && !read.TrustMarks && !before.config.TrustMarks:
			warn(first, "the plugin on line "+strconv.Itoa(line)+" marks requests too: if one proxy gets requests from the other, such as a sidecar from a gateway, it takes those marks away without trust_marks: true")
		}
	}
}
