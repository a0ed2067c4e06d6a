package envoytest

import (
	"os/exec"
	"syscall"
)

// endWithParent makes a process end with its parent, even if the parent is killed.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
