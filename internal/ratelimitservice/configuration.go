package ratelimitservice

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"weir/ratelimit"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Configuration is the content of some files, ready to match requests.
type Configuration struct {
	domains map[string]*domain
	// Ignored are fields that the rate limit service knows, but not in their place.
	Ignored []Mistake
	// Surprises are limits that are hardly meant as they are written.
	Surprises []Mistake
	// spaces are the shapes whose namespaces of counters the limits need: see [shape.space].
	spaces map[shape]bool
}

// File is a file of a configuration.
type File struct {
	Name string
	Text []byte
}

// domain has the descriptors of a domain.
type domain struct {
	level
	// Unless charge is ChargeAll, all limits of the domain have windows of the protocol's units and
	// the same pace. Limits in requests have that pace too.
	charge Charge
	// giveBack lets anyone who reaches the service give hits back.
	giveBack bool
	// pace is the pace of limits in requests.
	pace  pace
	paced bool
	// naming are the names in the domain's limits.
	naming []naming
	spaces map[shape]bool // the configuration's
}

// naming is a limit's name, and the names of the limits that it replaces.
type naming struct {
	name     string
	replaces []string
	file     string
	at       place
}

// level has the descriptors at one level.
type level struct {
	byKey map[string]*node // by key, or by key and value: see composite
	// wildcards are the descriptors with a *, in the order of the configuration.
	wildcards []*node
}

// node is a descriptor with the descriptors nested in it.
type node struct {
	level
	limit     *limit // nil if there is none
	composite string
	// parts are the pieces of the composite between its wildcards, or nil without wildcards.
	parts []string
	// share makes all values that match the wildcards share a counter.
	share bool
	// toMetric makes metrics tell apart the values in requests.
	toMetric bool
}

// limit is the limit of a descriptor.
type limit struct {
	told      *pb.RateLimitResponse_RateLimit
	shape     shape
	hits      ratelimit.Limit
	unlimited bool
	shadow    bool
	quota     bool
	name      string
	replaces  []string
	metadata  *structpb.Struct
	limiter   *ratelimit.Limiter // set once the limit has counters
	// path has the keys and values in the configuration that lead to the limit. series counts the
	// limit's hits; it is nil if no metrics are kept. detailed makes metrics show all keys and
	// values of requests, and named those of the path's descriptors with toMetric.
	path            []string
	detailed, named bool
	series          *series
}

// Options say how to read a configuration.
type Options struct {
	// MergeDomains lets several files describe the same domain.
	MergeDomains bool
	// Charge is for domains whose file does not choose.
	Charge Charge
}

// Charge says which limits of a request are charged when some of them refuse it.
type Charge uint8

const (
	// ChargeAll charges all limits. A limit that refuses then has nothing left.
	ChargeAll Charge = iota
	// ChargeRefusing charges only the limits that refuse.
	ChargeRefusing
	// ChargeAllOrNone charges no limit.
	ChargeAllOrNone
)

// charges are the names of the ways to charge, in their order.
var charges = []string{"all", "refusing", "all_or_none"}

// Read reads the files of a configuration. The error joins all mistakes, each with its file, line
// and path.
func Read(files []File, o Options) (*Configuration, error) {
	c, _, err := readAll(files, o)
	return c, err
}

// Domains reads files as [Read] does, for code that converts them.
func Domains(files []File, o Options) ([]Domain, error) {
	_, domains, err := readAll(files, o)
	return domains, err
}

func readAll(files []File, o Options) (c *Configuration, domains []Domain, err error) {
	c = &Configuration{domains: map[string]*domain{}, spaces: map[shape]bool{}}
	var errs []error // each a *[Mistake]
	for i := range files {
		r := &reader{file: files[i].Name}
		r.documents(files[i].Text, func(p place) {
			if d := r.document(p); d.Name != "" {
				c.add(r, &d, o)
				domains = append(domains, d)
			}
		})
		for i := range r.errs {
			errs = append(errs, &r.errs[i])
		}
		c.Ignored = append(c.Ignored, r.ignored...)
		c.Surprises = append(c.Surprises, r.surprises...)
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	steps := maxSteps
	for _, name := range slices.Sorted(maps.Keys(c.domains)) {
		c.Surprises = append(c.Surprises, c.domains[name].surprises(&steps)...)
		c.domains[name].naming = nil
	}
	return c, domains, nil
}

// maxSteps bounds the search for limits that replace each other, in names that are looked at.
const maxSteps = 1 << 20

// surprises are limits that replace limits which replace them too. It takes off the steps of its search, and
// tells where it ends because none are left.
func (d *domain) surprises(steps *int) (all []Mistake) {
	replaced := map[string][]string{} // by name
	for _, n := range d.naming {
		replaced[n.name] = append(replaced[n.name], n.replaces...)
	}
	for _, n := range d.naming {
		for _, of := range n.replaces {
			if *steps < 0 {
				return all
			}
			at := func(format string, args ...any) {
				all = append(all, *(&reader{file: n.file}).mistake(n.at.has("replaces"), format, args...))
			}
			if n.name != "" && reaches(replaced, of, n.name, steps) {
				at("%.80q and %.80q replace each other: a request that both match is limited by neither", n.name, of)
			} else if *steps < 0 {
				at("too many limits replace others to find out which replace each other, from here on")
			}
		}
	}
	return all
}

// reaches reports whether a limit replaces another, or a limit that replaces the other. It reports false once
// no steps are left.
func reaches(replaced map[string][]string, from, to string, steps *int) bool {
	seen, next := map[string]bool{}, []string{from}
	for len(next) > 0 && *steps >= 0 {
		name := next[0]
		if next = next[1:]; seen[name] {
			continue
		}
		seen[name] = true
		*steps -= 1 + len(replaced[name])
		if slices.Contains(replaced[name], to) {
			return true
		}
		next = append(next, replaced[name]...)
	}
	return false
}

func (c *Configuration) add(r *reader, said *Domain, o Options) {
	d := c.domains[said.Name]
	switch {
	case d == nil:
		d = &domain{level: newLevel(), charge: o.Charge, spaces: c.spaces}
		c.domains[said.Name] = d
		if said.chargeAt.node != nil {
			d.charge = said.charge
		}
	case !o.MergeDomains:
		r.fail(said.at, "want the domain %.80q once", said.Name)
		return
	case said.chargeAt.node != nil && said.charge != d.charge:
		r.fail(said.chargeAt, "want the same charge as in other files of the domain %.80q", said.Name)
	}
	d.giveBack = d.giveBack || said.giveBack
	d.add(r, said.Descriptors, d, nil, false)
}

func newLevel() level { return level{byKey: map[string]*node{}} }

// composite returns the name by which the rate limit service finds a descriptor. The service does
// not tell key and value apart: the key a_b has the same name as the key a with the value b.
func (d *Descriptor) composite() string {
	if d.Value == "" {
		return d.Key
	}
	return compose(d.Key, d.Value)
}

func compose(key, value string) string { return key + "_" + value }

func isWildcard(composite string) bool { return strings.Contains(composite, "*") }

func (l *level) add(r *reader, descriptors []Descriptor, of *domain, path []string, named bool) {
	for i := range descriptors {
		d := &descriptors[i]
		composite := d.composite()
		if l.byKey[composite] != nil {
			r.fail(d.at, "want the key and value %.80q once", composite)
			continue
		}
		n := &node{level: newLevel(), composite: composite, share: d.Share, toMetric: d.toMetric, limit: r.limit(d, of)}
		path, named := append(slices.Clip(path), composite), named || d.toMetric
		if n.limit != nil {
			n.limit.path, n.limit.detailed, n.limit.named = path, d.detailed, named
		}
		l.byKey[composite] = n
		if isWildcard(composite) {
			n.parts = strings.Split(composite, "*")
			l.wildcards = append(l.wildcards, n)
		}
		n.add(r, d.Descriptors, of, path, named)
	}
}

// limit returns the limit of a descriptor's rate_limit, or nil if it has none.
func (r *reader) limit(d *Descriptor, of *domain) *limit {
	said := d.Limit
	if said == nil {
		return nil
	}
	l := &limit{
		unlimited: said.Unlimited, shadow: d.Shadow, quota: d.Quota, name: said.name, replaces: said.Replaces, metadata: d.metadata,
		told: &pb.RateLimitResponse_RateLimit{Name: said.name, RequestsPerUnit: uint32(said.Hits)},
	}
	for _, name := range said.Replaces {
		if name == said.name && name != "" {
			r.fail(said.at, "want a limit that replaces others, and not itself")
		}
	}
	if said.name != "" || len(said.Replaces) > 0 {
		of.naming = append(of.naming, naming{said.name, said.Replaces, r.file, said.at})
	}
	if said.Unlimited {
		if said.unit != "" || said.window != "" {
			r.fail(said.at, "want no unit and no window for an unlimited limit")
		}
		return l
	}
	if !said.counted {
		r.tell(&r.surprises, "warnings", said.at, "requests_per_unit is missing: the limit is 0, and refuses every request")
	}
	faults := len(r.errs)
	l.shape = r.shape(said)
	l.told.Unit = l.shape.unit()
	if len(r.errs) > faults {
		return l
	}
	said.Algorithm, said.Window, said.FirstHit, said.Precision = l.shape.algorithm, l.shape.window, l.shape.firstHit, l.shape.precision
	if l.shape.calendar {
		said.Period, said.Zone = periodName(l.shape.period), l.shape.zone
	}
	if of.charge != ChargeAll {
		if !of.paced {
			of.pace, of.paced = l.shape.pace, true
		}
		if said.unit == "" || !l.shape.onClock() || l.shape.pace != of.pace || said.CountRejected {
			r.fail(said.at, "want fixed windows of units, the same sync_rate in the whole domain, and no count_rejected, because the domain charges %s", charges[of.charge])
		}
	}
	if space := l.shape.space(); !of.spaces[space] && len(of.spaces) == maxNamespaces {
		r.fail(said.at, "%s", manyNamespaces)
	} else {
		of.spaces[space] = true
	}
	l.hits = l.shape.limit(said.Hits, said.Burst)
	if said.unit != "" && l.shape.onClock() {
		return l // a fixed window of a unit can't be wrong
	}
	if _, err := ratelimit.NewLimiter(l.hits); err != nil {
		r.fail(said.at, "%s", strings.TrimPrefix(err.Error(), "ratelimit: limits[0]."))
	}
	return l
}
