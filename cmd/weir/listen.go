package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// listenOn listens on an address from a flag. Errors say what to do.
func listenOn(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s: end it, or choose another address with %s", address, flag)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("this user may not listen on %s: choose a port above 1023 with %s", address, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is no address of this machine: choose one with %s, such as 127.0.0.1 or 0.0.0.0", address, flag)
	case err != nil:
		return nil, fmt.Errorf("%s: want an address such as 127.0.0.1:9180: %w", flag, err)
	}
	return l, nil
}

// listenAtSocket listens on a Unix socket from a variable. It takes the place of a socket at which
// nobody listens, as a process that was killed leaves it.
func listenAtSocket(variable, path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		if err != nil {
			err = fmt.Errorf("%s: want the path of a socket to make: %w", variable, err)
		}
		return l, err
	}
	inUse := fmt.Errorf("%s: another program listens on %s: end it, or choose another path", variable, path)
	if found, err := os.Lstat(path); err == nil && found.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("%s: want the path of a socket to make, but %s is something else, and was not changed", variable, path)
	}
	if !stale(path) {
		return nil, inUse
	}
	// Another process may have taken the stale socket's place by now. So the socket is moved away
	// first, and back if somebody listens.
	aside := path[:len(path)-1] + "~" // a path of a socket can't be much longer
	if err := os.Rename(path, aside); err != nil {
		return nil, fmt.Errorf("%s: nobody listens on %s, and it can't be replaced: %w", variable, path, err)
	}
	if !stale(aside) {
		return nil, errors.Join(inUse, os.Rename(aside, path))
	}
	if err := os.Remove(aside); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	if l, err = net.Listen("unix", path); err != nil {
		err = fmt.Errorf("%s: %w", variable, err)
	}
	return l, err
}

// stale reports whether nobody listens on a socket.
func stale(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
