//go:build linux

package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
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

// modules are those whose files the test reads, by their names.
var modules = map[string]string{
	"ISTIO": "istio.io/istio", "GATEWAY_API": "sigs.k8s.io/gateway-api", "GATEWAY": "github.com/envoyproxy/gateway@v1.9.1",
	"PROMETHEUS": "github.com/prometheus-operator/prometheus-operator@v0.85.0",
}

// kubernetes is the version of ./cluster/go.mod. Helm and Istio ask an API server for it, which else is none.
const kubernetes = "v1.36.3"

// TestMain runs the tests once more, in a network that has a loopback interface and nothing else: Envoy Gateway and Istio
// listen on ports of their own choice, at all addresses.
func TestMain(m *testing.M) {
	if !nightly.On() || os.Getenv(inside) != "" {
		if os.Getenv(inside) != "" {
			if err := errors.Join(loopback(), folders(), root()); err != nil {
				fmt.Fprintln(os.Stderr, "a network and folders of its own:", err)
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
	programs, err := tools.Programs("../..", "cluster", "-s -w -X k8s.io/component-base/version.gitVersion="+kubernetes)
	if err != nil {
		return err
	}
	environment = append(environment, "PROGRAMS="+programs)
	for name, module := range modules {
		find := exec.Command("go", "mod", "download", "-json", module)
		find.Dir, find.Env = "cluster", append(os.Environ(), "GOWORK=off")
		said, err := find.Output()
		var found struct{ Dir string }
		if err := errors.Join(err, json.Unmarshal(said, &found)); err != nil {
			return fmt.Errorf("%s: %w\n%s", module, err, said)
		}
		environment = append(environment, name+"="+found.Dir)
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
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("a network of its own: %w: where AppArmor forbids it, sysctl kernel.apparmor_restrict_unprivileged_userns=0", err)
	}
	return cmd.Wait()
}

// folders has Istio's agent write its plugins into a folder that it can't be told, and gives names of a cluster to this machine.
func folders() error {
	names, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return err
	}
	for _, name := range []string{"istiod.istio-system.svc", "app.example", "weir.weir-system.svc.cluster.local", "envoy-gateway.envoy-gateway-system.svc.cluster.local", "envoy-gateway.envoy-gateway-system.svc.cluster.local.", "envoy-gateway"} {
		names = append(names, "127.0.0.1 "+name+"\n"...)
	}
	const own = "/var/lib"
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("own", own, "tmpfs", 0, ""), os.MkdirAll(own+"/istio/data", 0o700),
		os.WriteFile(own+"/hosts", names, 0o600), unix.Mount(own+"/hosts", "/etc/hosts", "", unix.MS_BIND, ""))
}

// root has a process find files of its own folder at /certs and /sds, where Envoy Gateway and its Envoys have volumes.
func root() error {
	const own = "/var/lib/root"
	here, err := os.Getwd()
	entries, unread := os.ReadDir("/")
	if err := errors.Join(err, unread, os.Mkdir(own, 0o700)); err != nil {
		return err
	}
	for _, entry := range entries {
		at := own + "/" + entry.Name()
		if entry.IsDir() {
			err = errors.Join(err, os.MkdirAll(at, 0o700), unix.Mount("/"+entry.Name(), at, "", unix.MS_BIND|unix.MS_REC, ""))
		} else if to, no := os.Readlink("/" + entry.Name()); no == nil {
			err = errors.Join(err, os.Symlink(to, at))
		}
	}
	for _, volume := range []string{"certs", "sds"} {
		err = errors.Join(err, os.Symlink("/proc/self/cwd/"+volume, own+"/"+volume))
	}
	return errors.Join(err, unix.Chroot(own), os.Chdir(here))
}

// address is this machine's, too, in that network: an EndpointSlice may have none of 127.0.0.0/8.
const address = "10.0.0.1"

// loopback brings up the interface lo, and gives it another address.
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
	also, err := unix.NewIfreq("lo:0")
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo), also.SetInet4Addr(net.ParseIP(address).To4()), unix.IoctlIfreq(socket, unix.SIOCSIFADDR, also))
}
