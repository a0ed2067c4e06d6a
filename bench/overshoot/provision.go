package main

import (
	"fmt"
	"strings"
)

// costs returns populations whose keys are all far from their limits.
func costs() (all []population) {
	for _, rate := range []int64{second / 5, second, 5 * second} {
		for _, keys := range []int{1, 100, 10_000} {
			for _, nodes := range []int{1, 10, 50} {
				all = append(all, population{nodes: nodes, keys: keys, perNode: 100, rate: rate, limit: 100_000_000, window: minute,
					warm: rate + 2*second, span: 20 * second, idle: minute, repeats: true, seed: seed})
			}
		}
	}
	return all
}

// thousand returns the populations of a thousand nodes and a million keys. The hottest keys are
// above their limits, and are refused. Nothing is sampled: all nodes and keys run for a few seconds
// after a window has passed, and for a shorter time if that is much.
func thousand() (all []population) {
	for _, p := range []struct {
		perNode float64
		rate    int64
		span    int64
	}{{10, second, 5 * second}, {100, second / 2, 5 * second}, {100, second, 5 * second}, {100, 5 * second, 5 * second}, {1000, second, second}} {
		all = append(all, population{nodes: 1000, keys: 1_000_000, perNode: p.perNode, rate: p.rate, limit: 1000, window: 5 * second,
			warm: 6 * second, span: p.span, seed: seed})
	}
	return all
}

func measureDemand(populations []population) (all []demand, err error) {
	for _, p := range populations {
		d, err := p.measure()
		if err != nil {
			return nil, fmt.Errorf("%d nodes, %d keys, %g requests a second and node: %w", p.nodes, p.keys, p.perNode, err)
		}
		all = append(all, d)
	}
	return all, nil
}

func costTable(all []demand) string {
	var b strings.Builder
	b.WriteString("                         per 1,000 requests                                          callouts after the last   pushes of a key\n")
	b.WriteString("sync_rate   keys  nodes  callouts  store trips  items  bytes up   down  waited  request, and then in a minute  within sync_rate\n")
	for i := range all {
		d := &all[i]
		fmt.Fprintf(&b, "%9g %6d %6d %9.1f %12.1f %6.1f %9.0f %6.0f %7.1f %8d %21d %16d\n", seconds(d.rate), d.keys, d.nodes, d.per1000(d.callouts),
			d.per1000(d.RoundTrips()), d.per1000(d.Items+d.Takes), d.per1000(d.BodyBytes), d.per1000(d.AnswerBytes), d.per1000(d.waits.Requests),
			d.settling, d.idleCallouts, d.repeated)
	}
	return b.String()
}

// mean returns how many commands a partition gets per second, with partitions[i] of them.
func (d *demand) mean(i int) float64 {
	return d.perSecond(d.split[i].commands) / float64(partitions[i])
}

func provisionTable(all []demand) string {
	var b strings.Builder
	b.WriteString("requests per second              per second at the backend                          ")
	for _, n := range partitions {
		fmt.Fprintf(&b, "  %-22s", fmt.Sprintf("and partition of %d", n))
	}
	b.WriteString("  node's shared\na node        all  sync_rate     pushes    joins     items     takes  MB up  MB down")
	for range partitions {
		b.WriteString("    mean  busiest  ratio")
	}
	b.WriteString("      data, KiB   passed   waited  longest, ms\n")
	for i := range all {
		d := &all[i]
		fmt.Fprintf(&b, "%6g %10.0f %10g %10.0f %8.0f %9.0f %9.0f %6.2f %8.2f", d.perNode, d.perNode*float64(d.nodes),
			seconds(d.rate), d.perSecond(d.Pushes), d.perSecond(d.Joins), d.perSecond(d.Items), d.perSecond(d.Takes), d.perSecond(d.BodyBytes)/1e6,
			d.perSecond(d.AnswerBytes)/1e6)
		for j := range partitions {
			mean, busiest := d.mean(j), d.perSecond(d.split[j].busiest)
			fmt.Fprintf(&b, " %7.0f %8.0f %6.2f", mean, busiest, busiest/mean)
		}
		fmt.Fprintf(&b, " %14.1f %8.3f %8.3f %12.1f\n", d.sharedBytes/1024, d.per1000(d.passed)/1000, d.per1000(d.waits.Requests)/1000,
			float64(d.waits.Longest)/1e6)
	}
	return b.String()
}
