// Package failure names what may become of requests while the counter backend can't be reached.
package failure

// Mode says how requests are decided while the backend can't be reached. Requests that need no
// backend are decided as always.
type Mode uint8

const (
	// Local decides by the counters of this process, and pushes the hits later.
	Local Mode = iota
	// Allow admits requests, and counts nothing where the backend would have to.
	Allow
	// Deny refuses requests.
	Deny
)

// Names has the name that each mode has in configurations and flags.
var Names = [...]string{Local: "local", Allow: "allow", Deny: "deny"}
