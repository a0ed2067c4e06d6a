package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// headerTimeout is how long a request's header may take, from its first byte on, or from the
	// connection's beginning.
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 5 * time.Minute
	// shutdownTimeout is the time that requests get to finish in.
	shutdownTimeout = 10 * time.Second
)

// Serve serves HTTP/1.1 and HTTP/2 on a listener until ctx ends: without TLS, unless the listener
// has it. Then it lets requests finish for up to 10 seconds. [Connections] bounds the listener's
// connections. It closes the listener, which others may close as soon as ctx has ended. The error is
// nil if ctx has ended, and no request was cut off.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnState:         noteState,
		ConnContext:       noteConnection,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case <-ctx.Done():
	case err := <-served:
		// A listener that was closed as ctx ended is no reason to leave requests behind.
		if ctx.Err() == nil {
			return fmt.Errorf("serve: %w", err)
		}
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(deadline); err != nil {
		return errors.Join(fmt.Errorf("serve: requests cut off: %w", err), server.Close())
	}
	return nil
}
