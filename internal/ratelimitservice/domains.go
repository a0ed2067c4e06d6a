package ratelimitservice

import (
	"time"

	"go.yaml.in/yaml/v4"
)

// Position is a place in a file. Lines and columns count from 1.
type Position struct {
	File         string
	Line, Column int
}

// Domain is a document of the configuration, for code that converts it.
type Domain struct {
	Position

	Name        string
	Descriptors []Descriptor
}

// Descriptor is a descriptor of a domain.
type Descriptor struct {
	Position

	Key, Value    string
	Limit         *RateLimit // nil if there is none
	Shadow, Quota bool
	// Share makes all values that match the wildcard share a counter.
	Share       bool
	Descriptors []Descriptor
}

// RateLimit is a limit as it is written, except that the window is resolved.
type RateLimit struct {
	Position

	Unlimited     bool
	Hits, Burst   uint64
	Algorithm     string
	Window        time.Duration // 0 for a window of the calendar
	Period, Zone  string
	FirstHit      bool
	Precision     time.Duration
	SyncRate      *time.Duration // nil if it is absent
	CountRejected bool
	Replaces      bool
}

// Domains reads files as [Read] does, for code that converts them.
func Domains(files []File, o Options) (domains []Domain, err error) {
	if _, err := Read(files, o); err != nil {
		return nil, err
	}
	for _, f := range files {
		r := &reader{file: f.Name}
		r.documents(f.Text, func(p place) {
			d := r.document(p)
			domains = append(domains, Domain{r.position(p.node), d.domain, r.shown(d.descriptors)})
		})
	}
	return domains, nil
}

func (r *reader) position(n *yaml.Node) Position { return Position{r.file, n.Line, n.Column} }

func (r *reader) shown(all []descriptor) (shown []Descriptor) {
	for i := range all {
		d := &all[i]
		s := Descriptor{r.position(d.at.node), d.key, d.value, nil, d.shadow, d.quota, d.share, r.shown(d.descriptors)}
		if l := d.limit; l != nil {
			s.Limit = &RateLimit{
				Position: r.position(l.at.node), Unlimited: l.unlimited, Hits: l.requestsPerUnit, Burst: l.burst,
				SyncRate: l.syncRate, CountRejected: l.countRejected, Replaces: len(l.replaces) > 0,
			}
			if !l.unlimited {
				shape := r.shape(l)
				s.Limit.Algorithm, s.Limit.Window, s.Limit.FirstHit, s.Limit.Precision = shape.algorithm, shape.window, shape.firstHit, shape.precision
				if shape.calendar {
					s.Limit.Window, s.Limit.Period, s.Limit.Zone = 0, periodName(shape.period), shape.zone
				}
			}
		}
		shown = append(shown, s)
	}
	return shown
}
