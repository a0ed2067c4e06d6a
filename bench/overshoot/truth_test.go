package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestTruth(t *testing.T) {
	debug = os.Getenv("DEBUG") != ""
	only := regexp.MustCompile(os.Getenv("ONLY"))
	table, err := truthTable(func(t *truth) bool { return t.limit.Quota() <= 10_000 && only.MatchString(t.name()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table)
	if debug {
		for _, k := range slices.Sorted(maps.Keys(falseAt)) {
			t.Log(float64(k)/10, falseAt[k])
		}
	}
}
