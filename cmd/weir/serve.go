package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"

	"weir/internal/server"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// serve is weir serve.
func serve(ctx context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:9180", "`address` to listen on")
	var store storeFlags
	flags.StringVar(&store.name, "store", "memory", "where the counters are kept: `memory`, or the URL of a store: redis://…, rediss://…, redis+cluster://… or postgres://…")
	token := flags.String("token", "", "bearer `token` that proxies must show; better given as WEIR_TOKEN, which other users can't see")
	store.boundFlag(flags)
	if err := parseFlags(flags, args, env); err != nil {
		return err
	}
	if *token == "" {
		*token = env.getenv("WEIR_TOKEN")
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(env.stderr, nil))
	return serveBackend(ctx, l, store, *token, log)
}

// serveBackend serves a store on a listener until ctx ends. It closes the listener.
func serveBackend(ctx context.Context, l net.Listener, flags storeFlags, token string, log *slog.Logger) error {
	store, closer, err := flags.open()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	handler := server.Handler(store, server.Options{Token: token, Registry: registry, Logger: log})
	log.Info("the counter backend listens", "address", l.Addr().String(), "token_required", token != "")
	if token == "" && !isLoopback(l.Addr()) {
		log.Warn("anybody who reaches the counter backend can read and change its counters; --token guards it")
	}
	err = server.Serve(ctx, l, handler)
	if closeErr := closer.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closeErr))
	}
	return err
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
