package main

import (
	"errors"
	"fmt"
	"net"
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
