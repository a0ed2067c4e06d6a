package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"

	"weir/internal/schema"
)

func printSchema(_ context.Context, args []string, env environment) error {
	if err := parseFlags(flag.NewFlagSet("schema", flag.ContinueOnError), args, env); err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, schema.JSON, "", "  "); err != nil {
		return err
	}
	_, err := env.stdout.Write(indented.Bytes())
	return err
}
