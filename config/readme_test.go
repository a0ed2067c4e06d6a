package config_test

import (
	"os"
	"regexp"
	"testing"

	"weir/config"
)

// The configuration that the README shows is right. The one inside Envoy's runs in the tests of
// envoy/.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(shown) != 1 {
		t.Errorf("the README shows %d configurations, want one", len(shown))
	}
	for _, document := range shown {
		if _, err := config.Parse(document[1]); err != nil {
			t.Errorf("%s\n%v", document[1], err)
		}
	}
}
