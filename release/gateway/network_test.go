//go:build linux

package gateway

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/nightly"
	"weir/internal/tools"
)

// inside is set in the process that has a network of its own.
const inside = "WEIR_OWN_NETWORK"

// binaries are the programs that the test runs, by their names. They are built before the network
// is left.
var binaries = map[string]string{"HELM": tools.Helm, "ENVOY_GATEWAY": tools.EnvoyGateway}

// TestMain runs the tests once more, in a network that has a loopback interface and nothing else: Envoy Gateway listens
// on ports of its own choice, at all addresses.
func TestMain(m *testing.M) {
	if !nightly.On() || os.Getenv(inside) != "" {
		if os.Getenv(inside) != "" {
			if err := loopback(); err != nil {
				fmt.Fprintln(os.Stderr, "the loopback interface:", err)
				os.Exit(1)
			}
		}
		os.Exit(m.Run())
	}
	if err := again(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func again() error {
	environment := append(os.Environ(), inside+"=1")
	for name, command := range binaries {
		file, err := tools.Install("../..", command)
		if err != nil {
			return err
		}
		environment = append(environment, name+"="+file)
	}
	dir, err := os.MkdirTemp("", "weir-images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	environment = append(environment, "IMAGES="+dir+"/images")
	if said, err := exec.Command("go", "build", "-o", dir+"/images", "weir/release").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, environment
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("a network of its own: %w: where AppArmor forbids it, sysctl kernel.apparmor_restrict_unprivileged_userns=0", err)
	}
	return cmd.Wait()
}

// loopback brings up the interface lo.
func loopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo)
}
