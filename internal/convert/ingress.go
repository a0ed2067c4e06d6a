package convert

import (
	"cmp"
	"math"
	"net/netip"
	"strings"
)

const annotation = "nginx.ingress.kubernetes.io/"

// ingress is an Ingress of Kubernetes.
type ingress struct {
	value       value
	name        string
	annotations map[string]value
	own         []*location
}

// ingresses reads the annotations of ingress-nginx, which count by the client's address. An Ingress
// has a zone for each limit, which all of its paths share.
func (c *converter) ingresses(documents []value) {
	status := 503
	var all []*ingress
	for len(documents) > 0 {
		d := documents[0]
		documents = append(documents[1:], d.get("items").list()...)
		switch d.get("kind").text() {
		case "ConfigMap":
			if s := d.get("data", "limit-req-status-code"); s.there() {
				status = s.whole(503)
			}
		case "Ingress":
			all = append(all, c.ingress(d))
		}
	}
	for _, i := range all {
		var others []*location
		for _, o := range all {
			if o != i {
				others = append(others, o.own...)
			}
		}
		c.ingressLimits(i, others, status)
	}
}

func (c *converter) ingress(d value) *ingress {
	i := &ingress{value: d, name: cmp.Or(d.get("metadata", "name").text(), "ingress"), annotations: map[string]value{}}
	for _, f := range d.get("metadata", "annotations").fields() {
		if name, ok := strings.CutPrefix(f.name, annotation); ok {
			i.annotations[name] = f.value
		}
	}
	expressions := i.annotations["use-regex"].truth(false) || i.annotations["rewrite-target"].there()
	if b := d.get("spec", "defaultBackend"); b.there() {
		i.own = append(i.own, &location{at: b.at(), rank: []int{-1, 0}})
	}
	for _, r := range d.get("spec", "rules").list() {
		var hosts []text
		rank := 0
		if host := strings.ToLower(r.get("host").text()); strings.HasPrefix(host, "*.") {
			hosts, rank = []text{{regex, `[^.]+` + strings.ReplaceAll(host[1:], ".", `\.`)}}, 1
		} else if host != "" {
			hosts, rank = []text{{exact, host}}, 2
		}
		for _, p := range r.get("http", "paths").list() {
			path := p.get("path").or("/")
			l := &location{at: p.at(), hosts: hosts, rank: []int{rank, len(path)}}
			switch kind := p.get("pathType").text(); {
			case expressions && kind != "Exact":
				t, ok := c.expression(p.get("path").at(), "(?i)^"+path, false)
				if !ok {
					continue
				}
				l.paths = []text{t}
			case kind == "Exact":
				l.paths, l.rank[1] = []text{{exact, path}}, math.MaxInt32
			case kind == "Prefix" && path != "/":
				path = strings.TrimSuffix(path, "/")
				l.paths = []text{{exact, path}, {prefix, path + "/"}}
			default:
				l.paths = []text{{prefix, path}}
			}
			i.own = append(i.own, l)
		}
		if !r.get("http").there() {
			i.own = append(i.own, &location{at: r.at(), hosts: hosts, rank: []int{rank, 0}})
		}
	}
	return i
}

func (c *converter) ingressLimits(i *ingress, others []*location, status int) {
	var except []any
	for _, name := range []string{"limit-whitelist", "limit-allowlist"} {
		if networks := i.annotations[name].text(); networks != "" {
			var a addresses
			for n := range strings.SplitSeq(networks, ",") {
				a.ClientIP = append(a.ClientIP, strings.TrimSpace(n))
			}
			if len(addressesOf(a.ClientIP)) != len(a.ClientIP) {
				i.annotations[name].lose("want networks such as 10.0.0.0/8, got %.80q", networks)
			}
			if a.ClientIP = addressesOf(a.ClientIP); len(a.ClientIP) > 0 {
				except = append(except, a)
			}
		}
	}
	for name, problem := range map[string]string{
		"limit-rate": "Weir does not limit bytes", "limit-rate-after": "Weir does not limit bytes",
	} {
		if v := i.annotations[name]; v.text() != "" && v.text() != "0" {
			v.lose("%s: %s", name, problem)
		}
	}
	if v := i.annotations["limit-connections"]; v.there() && v.whole(0) > 0 {
		for _, r := range c.matches(v.at(), i.own, others) {
			r.Name, r.Key, r.Limits = i.name+"-connections", []any{client()}, []limit{{Limit: uint64(v.whole(0)), Algorithm: inFlight}}
			r.Except = append(r.Except, except...)
			r.Response = c.responseOf(v.at(), status, "")
			c.add(v.at(), r)
		}
	}
	const multiplier = 5 // the default of ingress-nginx
	for _, name := range []string{"limit-rps", "limit-rpm"} {
		v := i.annotations[name]
		rate := v.whole(0)
		if !v.there() || rate <= 0 {
			continue
		}
		perMillis := uint64(1000)
		if name == "limit-rpm" {
			perMillis = 60_000
		}
		times := max(1, i.annotations["limit-burst-multiplier"].whole(multiplier))
		l := c.leakyBucket(v.at(), uint64(rate)*1000, perMillis, uint64(rate)*uint64(times))
		if l == nil {
			continue
		}
		for _, r := range c.matches(v.at(), i.own, others) {
			r.Name, r.Key, r.Limits = i.name+strings.TrimPrefix(name, "limit"), []any{client()}, []limit{*l}
			r.Except = append(r.Except, except...)
			r.Response = c.responseOf(v.at(), status, "")
			c.add(v.at(), r)
		}
	}
}

// addressesOf returns the texts that are networks or addresses, as networks.
func addressesOf(texts []string) (networks []string) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, p.String())
		} else if a, err := netip.ParseAddr(text); err == nil {
			networks = append(networks, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	return networks
}
