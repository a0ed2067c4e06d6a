package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// listenOn listens on an address that --listen says. Errors say what to do.
func listenOn(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s: end it, or choose another address with --listen", address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("this user may not listen on %s: choose a port above 1023 with --listen", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is no address of this machine: choose one with --listen, such as 127.0.0.1 or 0.0.0.0", address)
	case err != nil:
		return nil, fmt.Errorf("--listen: want an address such as 127.0.0.1:9180: %w", err)
	}
	return l, nil
}
