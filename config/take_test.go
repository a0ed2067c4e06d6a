package config_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/config"
	"weir/internal/must"
)

// manyLimits returns a configuration with a number of limits, at most eight in a rule.
func manyLimits(rate string, count int, limit string) string {
	var rules []string
	for ; count > 0; count -= 8 {
		limits := strings.Repeat(", "+limit, min(count, 8))[2:]
		rules = append(rules, fmt.Sprintf(`{"name": "r%d", "limits": [%s]}`, len(rules), limits))
	}
	return `{"backend": {"cluster": "weir"}, "sync_rate": ` + rate + `, "rules": [` + strings.Join(rules, ", ") + `]}`
}

// If the backend decides every request, all limits must fit into one question and its answer. The
// filter's tests check that the largest of these configurations work.
func TestRulesThatFitOneTake(t *testing.T) {
	const (
		fixed  = `{"limit": 5, "window": "1m", "algorithm": "fixed_window"}`
		log    = `{"limit": 505, "window": "1m", "algorithm": "sliding_log"}`
		narrow = `{"limit": 1, "window": "1m", "algorithm": "sliding_log"}`
		parts  = `{"limit": 5, "window": "1m", "precision": "1s"}`
	)
	tooMany := func(n int) string {
		return fmt.Sprintf("rules: want at most 1024 limits of all rules together where sync_rate is 0, because a request may match all rules, got %d", n)
	}
	tooLarge := func(n int) string {
		return fmt.Sprintf("rules: want fewer or smaller logs and sub-buckets: the backend's answer has at most 1048576 bytes "+
			"where sync_rate is 0, because a request may match all rules, got up to %d", n)
	}
	for _, test := range []struct {
		rate  string
		count int
		limit string
		want  string
	}{
		{"0", 1024, fixed, ""},
		{"0", 1025, fixed, tooMany(1025)},
		{"0", 2048, fixed, tooMany(2048)},
		{"-0.0", 1025, fixed, tooMany(1025)},
		{"0", 1025, log, tooMany(1025)},
		{"0", 103, log, ""},
		{"0", 104, log, tooLarge(1053954)},
		{"0", 1024, narrow, ""},
		{"0", 810, parts, ""},
		{"0", 811, parts, tooLarge(1049452)},
		// With a sync_rate above 0 the backend is asked for one rule at a time, and without a
		// backend never.
		{"0.001", 2048, fixed, ""},
		{"0.001", 2048, log, ""},
		{"-1", 2048, parts, ""},
	} {
		_, err := config.Parse([]byte(manyLimits(test.rate, test.count, test.limit)))
		got := ""
		if err != nil {
			got = err.Error()
		}
		must.Equal(t, got, test.want, "sync_rate %s, %d of %s", test.rate, test.count, test.limit)
	}
	// Other mistakes are reported too.
	_, err := config.Parse([]byte(strings.Replace(manyLimits("0", 1025, fixed), `"1m"`, `"1x"`, 1)))
	if err == nil || !strings.Contains(err.Error(), tooMany(1025)) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v, want two errors", err)
	}
}
