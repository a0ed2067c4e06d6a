package config_test

import (
	"slices"
	"testing"

	"weir/config"
)

func TestWarnings(t *testing.T) {
	for _, test := range []struct {
		document string
		want     []string
	}{
		{`{"rules": [{"name": "a", "limits": [{"limit": 20, "window": "1m"}, {"limit": 0, "window": "1m"}]}]}`, nil},
		{`{"rules": [{"name": "a", "limits": [{"limit": 5, "window": "1m", "algorithm": "sliding_log"}]},
			{"name": "b", "limits": [{"limit": 5, "window": "1m", "precision": "10s"}, {"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`, nil},
		{`{"rules": [{"name": "a", "limits": [{"limit": 20, "window": "1m"}, {"limit": 19, "window": "1h"}]},
			{"name": "b", "limits": [{"limit": 1, "window": "1s", "algorithm": "sliding_window"}]}]}`, []string{
			"rules[0].limits[1]: a sliding_window of 19 passes 0.95 of it of a client that never stops asking; a sliding_log passes all",
			"rules[1].limits[0]: a sliding_window of 1 passes 0.50 of it of a client that never stops asking; a sliding_log passes all",
		}},
	} {
		c, err := config.Parse([]byte(test.document))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range config.Warnings(c) {
			got = append(got, w.Error())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", test.document, got, test.want)
		}
	}
}
