// Package pretty stands in for github.com/tidwall/pretty, which gjson imports for its modifiers @pretty and @ugly. Weir uses
// neither, and the original brings encoding/json, fmt and reflection into the plugin. See RATIONALE.md.
package pretty

// Options has the fields that gjson sets.
type Options struct {
	Width          int
	Prefix, Indent string
	SortKeys       bool
}

// DefaultOptions is never changed.
var DefaultOptions = &Options{}

// Pretty returns its argument.
func Pretty(json []byte) []byte { return json }

// PrettyOptions returns its argument.
func PrettyOptions(json []byte, _ *Options) []byte { return json }

// Ugly returns its argument.
func Ugly(json []byte) []byte { return json }
