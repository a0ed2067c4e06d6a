package main

import (
	"fmt"

	"weir/internal/counter"
	"weir/internal/node"
)

func (w *world) debugLine() {
	fmt.Printf("%.4f place %d worker ", float64(w.now-monday)/1e9, debugPlace)
	for i, p := range w.nodes {
		if p == nil {
			continue
		}
		v := p.workers[0]
		var d node.Demand
		d.Rule, d.Key = &v.rules[0], onlyKey
		known := v.node.Look(&d, v.now())
		fmt.Printf(" [%d k%v %s]", i, known, counter.Debug(&d.Counter, v.now()))
	}
	fmt.Println()
}

var debugPlace int
