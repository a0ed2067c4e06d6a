package simulate

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"weir/config"
)

// document is a configuration that other configurations are made from.
type document struct {
	fields map[string]json.RawMessage
	rules  []map[string]json.RawMessage
	// text is the configuration for people, without the backend.
	text string
}

// parse reads a configuration, which must have no mistakes.
func parse(text []byte) (*document, *config.Config, error) {
	parsed, err := config.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	d := &document{}
	if err := json.Unmarshal(text, &d.fields); err != nil {
		return nil, nil, fmt.Errorf("want a configuration in JSON: %w", err)
	}
	if err := json.Unmarshal(d.fields["rules"], &d.rules); err != nil {
		return nil, nil, err
	}
	// A single proxy counts alone, and reports to no backend.
	delete(d.fields, "backend")
	shown, err := json.MarshalIndent(d.fields, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	// JSON escapes all other control characters.
	d.text = strings.ReplaceAll(string(shown), "\x7f", `\u007f`)
	delete(d.fields, "on_backend_failure")
	d.fields["sync_rate"] = json.RawMessage("-1")
	d.fields["headers"] = json.RawMessage("[]")
	for _, rule := range d.rules {
		delete(rule, "sync_rate")
		delete(rule, "headers")
	}
	return d, parsed, nil
}

func (d *document) only(rules []int) ([]byte, error) {
	return d.with(rules, func(map[string]json.RawMessage) {})
}

// limitless returns the configuration with some of its rules, with limits that refuse nothing.
func (d *document) limitless(rules []int) ([]byte, error) {
	return d.with(rules, func(rule map[string]json.RawMessage) {
		rule["limits"] = json.RawMessage(`[{"limit": 999999999999999, "window": "1ms", "algorithm": "fixed_window"}]`)
		delete(rule, "count_rejected")
		delete(rule, "overrides")
		delete(rule, "mode")
		delete(rule, "delay")
	})
}

func (d *document) with(rules []int, change func(rule map[string]json.RawMessage)) ([]byte, error) {
	var some []map[string]json.RawMessage
	for _, i := range rules {
		rule := maps.Clone(d.rules[i])
		change(rule)
		some = append(some, rule)
	}
	all := map[string]any{}
	for name, value := range d.fields {
		all[name] = value
	}
	all["rules"] = some
	return json.Marshal(all)
}
