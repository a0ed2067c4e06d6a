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

// Position is a place in a file. Lines and columns count from 1.
type Position struct {
	File         string
	Line, Column int
}

// Domain is a document of a file, which describes a domain.
type Domain struct {
	Position

	Name        string
	Descriptors []Descriptor

	at       place
	charge   Charge
	chargeAt place
	giveBack bool
}

// Descriptor is a descriptor as it is written.
type Descriptor struct {
	Position

	Key, Value    string
	Limit         *RateLimit // nil if there is none
	Shadow, Quota bool
	// Share makes all values that match the wildcard share a counter.
	Share       bool
	Descriptors []Descriptor

	at       place
	detailed bool
	toMetric bool
	metadata *structpb.Struct
}

// RateLimit is a rate_limit as it is written, and which windows that means.
type RateLimit struct {
	Position

	Unlimited     bool
	Hits, Burst   uint64
	Replaces      []string
	SyncRate      *time.Duration // nil if it is absent
	CountRejected bool
	// The windows of a limit without mistakes, unless it is Unlimited.
	Algorithm    string
	Window       time.Duration // 0 for a window of the calendar
	Period, Zone string
	FirstHit     bool
	Precision    time.Duration

	at      place
	unit    string
	counted bool // requests_per_unit is given
	name    string
	// The fields below are Weir's own.
	algorithm, start  string
	window, precision string
	zone              string
}

func (r *reader) position(p place) Position { return Position{r.file, p.node.Line, p.node.Column} }

func (r *reader) document(p place) (d Domain) {
	d.Position, d.at = r.position(p), p
	r.fields(p, map[string]func(place){
		"domain": r.text(&d.Name),
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
		"descriptors": r.descriptors(&d.Descriptors, 1),
	})
	if d.Name == "" {
		r.fail(p, "want a domain that is not empty")
	}
	return d
}

func (r *reader) descriptors(into *[]Descriptor, depth int) func(place) {
	return func(p place) {
		if depth > maxDepth {
			r.fail(p, "want descriptors nested at most %d deep", maxDepth)
			return
		}
		r.elements(p, func(p place) {
			*into = append(*into, r.descriptor(p, depth))
		})
	}
}

func (r *reader) descriptor(p place, depth int) (d Descriptor) {
	d.Position, d.at = r.position(p), p
	r.fields(p, map[string]func(place){
		"key":             r.text(&d.Key),
		"value":           r.text(&d.Value),
		"rate_limit":      func(p place) { d.Limit = r.rateLimit(p) },
		"shadow_mode":     r.truth(&d.Shadow),
		"quota_mode":      r.truth(&d.Quota),
		"detailed_metric": r.truth(&d.detailed),
		"value_to_metric": r.truth(&d.toMetric),
		"share_threshold": r.truth(&d.Share),
		"metadata":        func(p place) { d.metadata = r.metadata(p) },
		"descriptors":     r.descriptors(&d.Descriptors, depth+1),
	})
	switch {
	case d.Key == "":
		r.fail(p, "want a key that is not empty")
	case d.Share && !isWildcard(d.composite()):
		r.fail(p, "want share_threshold only with a value that has a *")
	}
	return d
}

func (r *reader) rateLimit(p place) *RateLimit {
	if p = p.resolved(); isNull(p.node) {
		return nil
	}
	l := &RateLimit{Position: r.position(p), at: p}
	r.fields(p, map[string]func(place){
		"unit": r.text(&l.unit),
		"requests_per_unit": func(p place) {
			l.counted = !isNull(p.resolved().node)
			r.whole(&l.Hits, mostPerUnit)(p)
		},
		"unlimited":      r.truth(&l.Unlimited),
		"name":           r.text(&l.name),
		"replaces":       r.replaces(l),
		"algorithm":      r.text(&l.algorithm),
		"start":          r.text(&l.start),
		"window":         r.text(&l.window),
		"precision":      r.text(&l.precision),
		"zone":           r.text(&l.zone),
		"burst":          r.whole(&l.Burst, mostPerUnit),
		"sync_rate":      r.syncRate(l),
		"count_rejected": r.truth(&l.CountRejected),
	})
	return l
}

func (r *reader) replaces(l *RateLimit) func(place) {
	return func(p place) {
		r.elements(p, func(p place) {
			name := ""
			r.fields(p, map[string]func(place){"name": r.text(&name)})
			if name == "" {
				r.fail(p, "want the name of the limit to replace")
			}
			l.Replaces = append(l.Replaces, name)
		})
	}
}

// syncRate reads seconds, as in a plugin's configuration, or a duration. 0 makes the backend decide
// every request.
func (r *reader) syncRate(l *RateLimit) func(place) {
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
		l.SyncRate = &rate
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
