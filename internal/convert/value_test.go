package convert

import (
	"testing"

	"weir/internal/must"

	"go.yaml.in/yaml/v4"
)

// A mapping is read once, merge keys and all, however many of its fields a source asks for.
func TestMappingsAreReadOnce(t *testing.T) {
	c := &converter{files: []File{{"file", []byte("config: {<<: {hour: 9}, minute: 5}")}}, mappings: map[*yaml.Node]mapping{}}
	d := c.documents()[0]
	for _, name := range []string{"minute", "hour", "day"} {
		must.Equal(t, testing.AllocsPerRun(1, func() { d.get("config", name) }), 0, "%s: allocations", name)
	}
}
