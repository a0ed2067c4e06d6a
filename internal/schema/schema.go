// Package schema has the JSON Schema of the plugin's configuration, for editors and for pipelines
// that do without the command.
//
// A schema can't say all: two rules of one name, a precision that divides its window, or bounds
// that lie the wrong way are mistakes that only [weir/config.Parse] finds. Whatever Parse accepts,
// the schema accepts, and what the schema refuses, Parse refuses.
package schema

import _ "embed"

// JSON is the schema, of draft 2020-12. It is not to be modified.
//
//go:embed schema.json
var JSON []byte
