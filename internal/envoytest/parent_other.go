//go:build !linux

package envoytest

import "os/exec"

// endWithParent does nothing: on this system only Close ends a process.
func endWithParent(*exec.Cmd) {}
