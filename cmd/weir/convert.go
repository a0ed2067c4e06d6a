package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"weir/internal/convert"
)

// errLost means that a configuration lacks something of its source, which was printed.
var errLost = errors.New("something was lost; --lossy accepts that")

const convertHelp = `
It prints Weir's configuration, or RateLimitPolicies for weir controller. For each thing that no rule can say, it prints FILE:LINE:COLUMN:
PROBLEM to standard error. Each source has its files, and - is standard input:

  nginx      a configuration's files, or the output of nginx -T, and Ingresses with the annotations of
             ingress-nginx
  ratelimit  YAML of the rate limit service, and Envoy's routes with rate_limits
  kong       a declarative configuration
  apisix     an apisix.yaml, or an answer of the Admin API
  policies   BackendTrafficPolicies of Envoy Gateway, and RateLimitPolicies and TokenRateLimitPolicies
             of Kuadrant

  weir convert --from nginx nginx.conf >weir.json
  nginx -T | weir convert --from nginx -
  weir convert --from ratelimit limits.yaml envoy.yaml
  weir convert --from kong --lossy kong.yaml
  kubectl get ingresses -A -o yaml | weir convert --from nginx -
  kubectl get backendtrafficpolicies -A -o yaml | weir convert --from policies - | kubectl apply -f -

Exit codes: 0; 1 if something was lost and --lossy was not given, if a file can't be read, or if the
files limit nothing; 2 if the command line is wrong.
`

func convertFiles(_ context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("convert", flag.ContinueOnError)
	from := flags.String("from", "", "`SOURCE` of the files: "+strings.Join(convert.Sources(), ", ")+"; required")
	lossy := flags.Bool("lossy", false, "exit with 0 though something was lost")
	names, err := parseMixed(flags, args, env, "FILE…")
	switch {
	case err != nil:
		return err
	case !slices.Contains(convert.Sources(), *from):
		return fmt.Errorf("%w: --from: want one of %s, got %.40q", errUsage, strings.Join(convert.Sources(), ", "), *from)
	case len(names) == 0:
		return fmt.Errorf("%w: want the names of files, or - for standard input", errUsage)
	}
	result, err := convertFrom(*from, names, env)
	if err != nil {
		return err
	}
	if _, err := env.stdout.Write(result.Document); err != nil {
		return err
	}
	if len(result.Lost) > 0 && !*lossy {
		return errLost
	}
	return nil
}

// convertFrom converts the files of a source, and prints the parts that Weir can't express.
func convertFrom(source string, names []string, env environment) (*convert.Result, error) {
	var files []convert.File
	for _, name := range names {
		text, err := readFile(name, env)
		if err != nil {
			return nil, err
		}
		files = append(files, convert.File{Name: name, Text: text})
	}
	result, err := convert.Convert(source, files)
	if err != nil {
		return nil, err
	}
	for _, l := range result.Lost {
		fmt.Fprintln(env.stderr, legible(l.String()))
	}
	if result.Document == nil {
		return nil, errors.New("the files have no limits that Weir can enforce")
	}
	return result, nil
}
