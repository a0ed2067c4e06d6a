package main

import (
	"context"
	"flag"

	"weir/internal/schema"
)

// printSchema runs weir schema.
func printSchema(_ context.Context, args []string, env environment) error {
	if err := parseFlags(flag.NewFlagSet("schema", flag.ContinueOnError), args, env); err != nil {
		return err
	}
	_, err := env.stdout.Write(schema.JSON)
	return err
}
