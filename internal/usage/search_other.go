//go:build !wasm

package usage

// pass returns a place in a text before which the text has no beginning. The place is at most 32
// bytes before the first beginning or the end.
func pass(text []byte, b *beginning) (at int) { return passPortably(text, b) }
