// Package floor has the filters that benchmarks put beside the plugin: one that makes the host
// calls of a decision and decides nothing, and one that does nothing.
package floor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Filters are what bench/v8/export.js prints.
type Filters struct {
	// Floor and Nothing are modules.
	Floor, Nothing []byte
	// Headers are those of a request, by name and value.
	Headers   [][2]string
	Scenarios []Scenario
}

// Scenario is one of bench/v8/scenarios.js.
type Scenario struct {
	Name, Title        string
	StepNanos          int64 `json:"step_nanos"`
	Refused            bool
	Configuration      []byte
	FloorConfiguration []byte `json:"floor_configuration"`
	// PageName and PageSize are of the floor's page; it has none if the name is empty.
	PageName []byte `json:"page_name"`
	PageSize int    `json:"page_size"`
}

// Export has Node assemble the filters, and work out what the floor does in the scenarios of these
// names. The folder is bench, the plugin a file.
func Export(ctx context.Context, dir, plugin string, names ...string) (*Filters, error) {
	if _, err := os.Stat(filepath.Join(dir, "v8", "node_modules")); err != nil {
		return nil, fmt.Errorf("floor filters, which Node assembles: %w: run make bench/v8/node_modules", err)
	}
	command := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, "v8", "export.js"), plugin}, names...)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("floor filters, which Node assembles: %w", err)
	}
	f := &Filters{}
	if err := json.Unmarshal(output, f); err != nil {
		return nil, fmt.Errorf("floor filters: %w", err)
	}
	return f, nil
}
