package config_test

import (
	"fmt"

	"weir/config"
)

func ExampleParse() {
	_, err := config.Parse([]byte(`{
	  "rules": [{
	    "name": "per user",
	    "key": [{"header": "x-user"}],
	    "limits": [{"limit": 100, "windows": "1 minute", "window": "1 minute"}]
	  }]
	}`))
	fmt.Println(err)
	// Output:
	// rules[0].name: want a string of 1 to 64 of A-Za-z0-9_-, got "per user"
	// rules[0].limits[0].windows: unknown field, did you mean "window"?
	// rules[0].limits[0].window: want a duration such as "30s" or "1m", got "1 minute"
}
