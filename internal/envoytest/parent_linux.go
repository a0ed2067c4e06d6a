package envoytest

import (
	"os/exec"
	"syscall"
)

// endWithParent has a process end with its parent, also if the parent is killed.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
