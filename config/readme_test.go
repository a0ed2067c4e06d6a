package config_test

import (
	"os"
	"regexp"
	"testing"

	"weir/config"
)

// The configurations that the README shows are right.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)(?:```json\n|value: \\|\n)(.*?)```").FindAllSubmatch(readme, -1)
	if len(shown) != 2 {
		t.Errorf("the README shows %d configurations, want one alone and one inside Envoy's", len(shown))
	}
	for _, document := range shown {
		if _, err := config.Parse(document[1]); err != nil {
			t.Errorf("%s\n%v", document[1], err)
		}
	}
}
