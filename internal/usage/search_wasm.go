package usage

// pass returns a place in a text before which the text has no beginning. The place is at most 32
// bytes before the first beginning or the end. Go's compiler makes no loops of WebAssembly, so
// this function is written in its assembler.
//
//go:noescape
func pass(text []byte, b *beginning) (at int)
