package config_test

import (
	"fmt"
	"testing"

	"weir/config"
	"weir/internal/must"
	"weir/window"
)

// Each proxy has the whole part of every limit, of overrides too, and no rule without the rate does.
func TestShare(t *testing.T) {
	const document = `{"sync_rate": "share", "replicas": {"property": ["node", "metadata", "N"]}, "rules": [
		{"name": "a", "limits": [
			{"limit": 100, "window": "1m"}, {"limit": 7, "window": "1m", "algorithm": "fixed_window"}, {"limit": 8, "window": "1h", "algorithm": "sliding_log"},
			{"limit": 30, "window": "1m", "precision": "1s"}, {"limit": 6, "window": "1m", "algorithm": "token_bucket"},
			{"limit": 6, "window": "1h", "algorithm": "token_bucket", "burst": 100}, {"limit": 0, "window": "1h", "algorithm": "token_bucket"}]},
		{"name": "held", "limits": [{"limit": 5, "algorithm": "in_flight"}], "overrides": {"by": "host", "values": {"x": [{"limit": 50, "algorithm": "in_flight"}]}}},
		{"name": "whole", "sync_rate": -1, "limits": [{"limit": 100, "window": "1m"}]}]}`
	for _, test := range []struct {
		property string // the property's text
		want     string // the limits and bursts
		refused  string
	}{
		{property: "1", want: "100/0 7/0 8/0 30/0 6/6 6/100 0/1 5/0 50/0 100/0 "},
		{property: "3", want: "33/0 2/0 2/0 10/0 2/2 2/33 0/1 1/0 16/0 100/0 "},
		{property: "", refused: `replicas: want an integer from 1 to 10000 in the proxy's node.metadata.N, got ""`},
		{property: "-1", refused: `replicas: want an integer from 1 to 10000 in the proxy's node.metadata.N, got "-1"`},
		{property: "10001", refused: `replicas: want an integer from 1 to 10000 in the proxy's node.metadata.N, got "10001"`},
		{property: "6", refused: "rules[1].limits[0].limit: want 0, or at least one for each of the 6 replicas, got 5"},
	} {
		c, err := config.ParseIn([]byte(document), func(path string) string {
			must.Equal(t, path, "node\x00metadata\x00N", "read")
			return test.property
		})
		if test.refused != "" {
			must.Equal(t, fmt.Sprint(err), test.refused, "%q", test.property)
			continue
		}
		must.OK(t, err)
		must.Equal(t, limitsOf(c), test.want, "%q", test.property)
		if !c.Rules[0].Share || c.Rules[2].Share || c.Rules[0].SyncRate >= 0 {
			t.Errorf("shared %v and %v, rate %d", c.Rules[0].Share, c.Rules[2].Share, c.Rules[0].SyncRate)
		}
	}
	c, err := config.Parse([]byte(document))
	if err != nil || limitsOf(c) != "100/0 7/0 8/0 30/0 6/6 6/100 0/1 5/0 50/0 100/0 " || c.Replicas != 0 {
		t.Errorf("without a proxy: got %s, %v", limitsOf(c), err)
	}
}

func limitsOf(c *config.Config) (text string) {
	add := func(limits []window.Limit) {
		for _, l := range limits {
			text += fmt.Sprintf("%d/%d ", l.Max, l.Burst)
		}
	}
	for i := range c.Rules {
		add(c.Rules[i].Limits)
		for _, o := range c.Rules[i].Overrides.Values {
			add(o.Limits)
		}
	}
	return text
}
