package main

import (
	"os"
	"regexp"
	"testing"
)

func TestTruth(t *testing.T) {
	only := regexp.MustCompile(os.Getenv("ONLY"))
	table, err := truthTable(func(t *truth) bool { return t.limit.Quota() <= 10_000 && only.MatchString(t.name()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table)
}
