package ratelimitservice

import (
	"math"
	"slices"
	"strings"
	"time"

	"weir/config"
	"weir/internal/spelling"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/types/known/structpb"
)

// itsFields are the fields of the rate limit service's configuration. The service accepts them
// everywhere, and reads them only in their place.
var itsFields = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "shadow_mode", "quota_mode",
	"name", "replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
}

// maxDepth bounds how deep descriptors nest.
const maxDepth = 64

// document is a document of a file, which describes a domain.
type document struct {
	at          place
	domain      string
	charge      Charge
	chargeAt    place
	giveBack    bool
	descriptors []descriptor
}

// descriptor is a descriptor as it is written.
type descriptor struct {
	at            place
	key, value    string
	limit         *rateLimit // nil if there is none
	shadow, quota bool
	detailed      bool
	toMetric      bool
	share         bool
	metadata      *structpb.Struct
	descriptors   []descriptor
}

// rateLimit is a rate_limit as it is written.
type rateLimit struct {
	at              place
	unit            string
	requestsPerUnit uint64
	counted         bool // requests_per_unit is given
	unlimited       bool
	name            string
	replaces        []string
	// The fields below are Weir's own.
	algorithm, start  string
	window, precision string
	zone              string
	burst             uint64
	syncRate          *time.Duration
	countRejected     bool
}

func (r *reader) document(p place) (d document) {
	d.at = p
	r.fields(p, map[string]func(place){
		"domain": r.text(&d.domain),
		"charge": func(p place) {
			d.chargeAt = p
			name := ""
			r.text(&name)(p)
			if at := slices.Index(charges, name); at >= 0 {
				d.charge = Charge(at)
			} else {
				r.fail(p, "want %s", strings.Join(charges, ", "))
			}
		},
		"give_back":   r.truth(&d.giveBack),
		"descriptors": r.descriptors(&d.descriptors, 1),
	})
	if d.domain == "" {
		r.fail(p, "want a domain that is not empty")
	}
	return d
}

func (r *reader) descriptors(into *[]descriptor, depth int) func(place) {
	return func(p place) {
		if depth > maxDepth {
			r.fail(p, "want descriptors nested at most %d deep", maxDepth)
			return
		}
		r.elements(p, func(_ int, p place) {
			*into = append(*into, r.descriptor(p, depth))
		})
	}
}

func (r *reader) descriptor(p place, depth int) (d descriptor) {
	d.at = p
	r.fields(p, map[string]func(place){
		"key":             r.text(&d.key),
		"value":           r.text(&d.value),
		"rate_limit":      func(p place) { d.limit = r.rateLimit(p) },
		"shadow_mode":     r.truth(&d.shadow),
		"quota_mode":      r.truth(&d.quota),
		"detailed_metric": r.truth(&d.detailed),
		"value_to_metric": r.truth(&d.toMetric),
		"share_threshold": r.truth(&d.share),
		"metadata":        func(p place) { d.metadata = r.metadata(p) },
		"descriptors":     r.descriptors(&d.descriptors, depth+1),
	})
	switch {
	case d.key == "":
		r.fail(p, "want a key that is not empty")
	case d.share && !isWildcard(d.composite()):
		r.fail(p, "want share_threshold only with a value that has a *")
	}
	return d
}

func (r *reader) rateLimit(p place) *rateLimit {
	if p = p.resolved(); isNull(p.node) {
		return nil
	}
	l := &rateLimit{at: p}
	r.fields(p, map[string]func(place){
		"unit": r.text(&l.unit),
		"requests_per_unit": func(p place) {
			l.counted = !isNull(p.resolved().node)
			r.whole(&l.requestsPerUnit, mostPerUnit)(p)
		},
		"unlimited":      r.truth(&l.unlimited),
		"name":           r.text(&l.name),
		"replaces":       r.replaces(l),
		"algorithm":      r.text(&l.algorithm),
		"start":          r.text(&l.start),
		"window":         r.text(&l.window),
		"precision":      r.text(&l.precision),
		"zone":           r.text(&l.zone),
		"burst":          r.whole(&l.burst, mostPerUnit),
		"sync_rate":      r.syncRate(l),
		"count_rejected": r.truth(&l.countRejected),
	})
	return l
}

func (r *reader) replaces(l *rateLimit) func(place) {
	return func(p place) {
		r.elements(p, func(_ int, p place) {
			name := ""
			r.fields(p, map[string]func(place){"name": r.text(&name)})
			if name == "" {
				r.fail(p, "want the name of the limit to replace")
			}
			l.replaces = append(l.replaces, name)
		})
	}
}

// syncRate reads seconds, as in a plugin's configuration, or a duration. 0 makes the backend decide
// every request.
func (r *reader) syncRate(l *rateLimit) func(place) {
	return func(p place) {
		p = p.resolved()
		const most = 3600
		var seconds float64
		if d, ok := config.ParseDuration(p.node.Value); ok {
			seconds = time.Duration(d).Seconds()
		} else if p.node.Decode(&seconds) != nil {
			seconds = -1
		}
		rate := time.Duration(math.Round(seconds*1000)) * time.Millisecond
		if !(seconds >= 0 && seconds <= most) || rate == 0 && seconds != 0 {
			r.fail(p, "want seconds from 0.001 to %d, or 0 to ask the store each time", most)
			return
		}
		l.syncRate = &rate
	}
}

func (r *reader) metadata(p place) *structpb.Struct {
	p = p.resolved()
	var fields map[string]any
	if isNull(p.node) || !r.weigh(p) {
		return nil
	}
	if p.node.Decode(&fields) != nil {
		r.fail(p, "want fields and their values")
		return nil
	}
	metadata, err := structpb.NewStruct(fields)
	if err != nil {
		r.fail(p, "want values that JSON can express: %v", err)
	}
	return metadata
}

// weigh counts the values of a part, and reports whether they stay below the bound.
func (r *reader) weigh(p place) bool {
	if p = p.resolved(); !r.enter(p, 1) {
		return false
	}
	return !slices.ContainsFunc(p.node.Content, func(n *yaml.Node) bool { return !r.weigh(place{n, p.path}) })
}

// suggestion returns a hint at a known field with a similar name.
func suggestion(name string, of map[string]func(place)) string {
	for known := range of {
		if len(name) < 40 && spelling.Distance(name, known) <= 2 {
			return ": did you mean " + known + "?"
		}
	}
	return ""
}
