package envoytest

import (
	"os/exec"
	"syscall"
)

// endWithParent has a process end with this one, also where this one is killed.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
