package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"weir/internal/spelling"
)

type command struct {
	name string
	// summary says in a line what it does. operands may follow its flags.
	summary, operands string
	// help says more, with examples.
	help string
	// run runs the command with its arguments, until it is done or ctx ends.
	run func(ctx context.Context, args []string, env environment) error
}

// commands returns all commands, in the order of the help.
func commands() []command {
	return []command{
		{name: "run", summary: "run proxies with the plugin, a backend and an upstream, to try a configuration", run: runNodes, help: `
Everything runs in this process and needs no Envoy: --nodes proxies that run the compiled plugin, a
counter backend if the configuration has one, and an upstream. The upstream answers with the request.
It answers POST /v1/chat/completions as a language model does, as a stream too.
The compiled plugin is kept in the user's cache folder, so that the next run starts sooner.
A page shows what the algorithms do and, on a loopback address, the proxies at work: there you can send
them traffic, stop the backend, and change a limit.

  weir run
  weir run --config my.json --upstream http://127.0.0.1:3000
  weir run --config my.json --nodes 3 --listen 127.0.0.1:9000 --store redis://127.0.0.1:6379

Environment:

  WEIR_STORE  takes the place of --store, unless that or --store-file is given
`},
		{name: "serve", summary: "run the counter backend that proxies share", run: serve, help: `
Run any number of them on one store, or a single one with --store file:PATH, which needs no database.
On an address beyond loopback, weir serve starts only with a token, with clients' certificates or with
--insecure.

  weir serve
  weir serve --store file:/var/lib/weir/weir.db
  WEIR_TOKEN=change-me weir serve --listen 0.0.0.0:9180 --store redis://redis:6379
  weir serve --token-file tokens --ui 127.0.0.1:9181
  weir serve --rate-limit-service 127.0.0.1:8081 --descriptors limits.yaml
  weir serve --listen :9180 --token-file tokens --store-file store --tls-cert tls.crt --tls-key tls.key

It answers GET /readyz with 200 while the store takes hits and with 503 otherwise, and /livez with 200
as long as it runs. /metrics is for Prometheus. It starts, and goes on, while its store is away or its
disk is full: /readyz and the log say so. After SIGTERM it lets requests under way finish for up to 10
seconds.

Environment:

  WEIR_STORE                takes the place of --store, unless that or --store-file is given
  WEIR_TOKEN                takes the place of --token, unless that or --token-file is given
  WEIR_WARN_WEBHOOK         takes the place of --warn-webhook, unless that or --warn-webhook-file is given
  WEIR_WARN_WEBHOOK_SECRET  takes the place of --warn-webhook-secret, unless that or its file is given
`},
		{name: "ratelimit", summary: "run Envoy's rate limit service by the environment variables of envoyproxy/ratelimit", run: rateLimit, help: ratelimitHelp},
		{name: "controller", summary: "attach RateLimitPolicies to Gateways and routes on Kubernetes", run: controller, help: controllerHelp},
		{name: "policy", summary: "show RateLimitPolicies, and which of their rules are in force where", run: showPolicies, help: policyHelp},
		{name: "check", summary: "check configurations, also inside documents of Envoy and Istio", operands: "FILE…", run: checkFiles, help: checkHelp},
		{name: "compile", summary: "print a configuration with conditions in place of its expressions of CEL", operands: "FILE", run: compileExpressions, help: `
The plugin has no interpreter of CEL: weir compile makes conditions of each "if", and prints the JSON that
the plugin takes. Everything else stays as it is. weir check, weir run and weir simulate do the same, so they
take files with expressions.

  weir compile rules.json >plugin.json
  weir compile envoy.yaml:12
`},
		{name: "convert", summary: "make Weir's configuration from those of nginx, Kong, APISIX or Envoy's rate limit service", operands: "--from SOURCE FILE…", run: convertFiles, help: convertHelp},
		{name: "schema", summary: "print the JSON Schema of a configuration", run: printSchema, help: `
Editors use it to check and complete configurations.

  weir schema >weir.schema.json
`},
		{name: "simulate", summary: "replay access logs through a configuration's rules", operands: "--config FILE LOG…", run: runSimulation, help: `
For each rule it tells which share of the logged requests the rule would have refused, and whose. For
each limit it tells how much other limits, and other algorithms, would refuse in its place. It reads
logs of Envoy, Istio, nginx, Caddy, Traefik, CloudFront and the load balancers of Amazon and Google, and
the common and combined formats, plain or compressed with gzip; - is standard input.

  weir simulate --config new.json access.log access.log.1.gz
  weir simulate --config new.json --html report.html access.log
  weir simulate --descriptors limits.yaml --descriptors envoy.yaml access.log
`},
		{name: "top", summary: "show the keys with most hits and most refusals", operands: topUsage, run: showTop, help: backendHelp},
		{name: "namespaces", summary: "list namespaces with their proxies, or show the rules of one", operands: namespacesUsage, run: namespaces, help: backendHelp},
		{name: "report", summary: "show what a rule refuses, or what a shadow rule would refuse", operands: reportUsage, run: report, help: backendHelp},
		{name: "counter", summary: "show or reset a single key's counter, or give it hits back", operands: counterUsage, run: counterOf, help: keyHelp},
		{name: "why", summary: "show which rules refuse a key now", operands: whyUsage, run: why, help: keyHelp},
		{name: "override", summary: "give single keys other limits while everything runs", operands: overrideUsage, run: override, help: backendHelp},
		{name: "rule", summary: "switch a whole rule off, to shadow mode, or give it other limits while everything runs", operands: ruleUsage, run: wholeRule, help: backendHelp},
		{name: "price", summary: "set what the tokens of models cost while everything runs", operands: priceUsage, run: price, help: backendHelp},
		{name: "usage", summary: "show what each key has used, and how long its budget lasts", operands: usedUsage, run: used, help: backendHelp},
		{name: "changes", summary: "show who has changed limits, counters and prices", operands: changesUsage, run: changes, help: backendHelp},
		{name: "completion", summary: "print the completion of a shell: bash, zsh or fish", operands: "SHELL", run: printCompletion, help: completionHelp},
		{name: "version", summary: "print the version", run: printVersion, help: ""},
	}
}

// backendHelp is the help of commands that call weir serve.
const backendHelp = `
Environment:

  WEIR_BACKEND  takes the place of --backend, unless that is given
  WEIR_TOKEN    takes the place of --token, unless that or --token-file is given
`

// keyHelp is that of those that ask for a single key.
const keyHelp = `
Environment:

  WEIR_BACKEND     takes the place of --backend, unless that is given
  WEIR_TOKEN       takes the place of --token, unless that or --token-file is given
  WEIR_KEY_SECRET  takes the place of --key-secret, unless that or --key-secret-file is given
`

const exitCodes = `
Exit codes: 0, or 1 after a failure, or 2 if the command line is wrong.
`

// find returns the command with a name, or nil.
func find(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return &c
		}
	}
	return nil
}

func usage() string {
	var b strings.Builder
	b.WriteString(`Weir limits rates inside Envoy and Istio. This command runs all that goes beside the plugin.

Usage:

  weir COMMAND [flags]

Commands:

`)
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.summary)
	}
	b.WriteString(`  help       print this, or the help of a command

weir COMMAND --help prints a command's flags, and examples.
`)
	return b.String()
}

// helpOf returns the text for a command's --help.
func helpOf(flags *flag.FlagSet) string {
	var b strings.Builder
	c := find(flags.Name())
	synopsis, more, _ := strings.Cut(c.operands, "\n")
	fmt.Fprintf(&b, "weir %s: %s.\n\nUsage: weir %s [flags] %s", c.name, c.summary, c.name, synopsis)
	text := strings.TrimRight(b.String(), " ") + "\n"
	b.Reset()
	if more != "" {
		text += strings.TrimRight(more, "\n") + "\n"
	}
	text += c.help
	flags.VisitAll(func(f *flag.Flag) {
		argument, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(&b, "  --%s\n%s", strings.TrimSpace(f.Name+" "+argument), wrap(usage, "        "))
	})
	if b.Len() > 0 {
		text += "\nFlags:\n\n" + b.String()
	}
	if !strings.Contains(c.help, "Exit codes") {
		text += exitCodes
	}
	return text
}

// wrap breaks a text into lines of at most 100 characters.
func wrap(text, indent string) string {
	const width = 100
	var b strings.Builder
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len([]rune(line))+1+len([]rune(word)) > width && line != indent {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
	return b.String()
}

func suggestCommand(name string) string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return meant(name, names)
}

// suggestFlag names a flag that may have been meant, if err says that a flag does not exist.
func suggestFlag(flags *flag.FlagSet, err error) string {
	_, name, unknown := strings.Cut(err.Error(), "flag provided but not defined: ")
	if !unknown {
		return ""
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if near := nearest(strings.TrimLeft(name, "-"), names); near != "" {
		return ": did you mean --" + near + "?"
	}
	return ""
}

// nearest returns the name that differs from text in the fewest letters, if these are few, or that
// begins with it.
func nearest(text string, names []string) (near string) {
	if len(text) > 40 {
		return ""
	}
	least := 3
	for _, name := range names {
		d := spelling.Distance(text, name)
		if len(text) > 2 && strings.HasPrefix(name, text) {
			d = 1
		}
		if d < least && d < len(name)-1 {
			near, least = name, d
		}
	}
	return near
}
