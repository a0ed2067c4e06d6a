package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"weir/config"
	"weir/internal/server"
	tokens "weir/internal/usage"
	"weir/internal/wire"
)

const priceUsage = `set | load | diff | list | unset NAMESPACE [LIST] [MODEL] [KIND=PRICE…] [FILE]

  weir price set default models gpt-5 input=1.25 cached=0.125 output=10
  weir price load default models prices.json --wait 5s
  weir price load default models --from litellm model_prices_and_context_window.json --provider openai
  weir price diff default models --from models.dev api.json --provider openai
  weir price list default
  weir price unset default models gpt-5

A price that is set goes before that of the configuration's list of the same name, or adds a model to it.
KIND is input, cached, cache_write, output, reasoning, audio or audio_output. load replaces all prices
of the list that were set before by those of FILE, which is JSON such as
{"gpt-5": {"input": 1.25, "output": 10}}, or - for standard input. Requests under way keep the price
they came with. diff tells what load would change, and changes nothing.

With --from the file is that of LiteLLM, or api.json of models.dev. Name its --provider, as their models
have too many prices for a list, and other names than their provider gives them. A list has one price for
each kind of tokens, also of long prompts: above=200000/gemini-2.5-pro are those of requests with more than
200,000 tokens in their prompt, time=16:30-00:30/deepseek-chat those of a time of day by the clock of the list's
zone, and with --tiers service_tier=flex/gpt-5 those of answers in that tier, and of batches.
Prices of images, seconds and searches are told, and not carried over.
`

func price(ctx context.Context, args []string, env environment) error {
	c := priceCommand{env: env}
	flags := flag.NewFlagSet("price", flag.ContinueOnError)
	c.backend.changing(flags)
	flags.BoolVar(&c.json, "json", false, "list as JSON")
	flags.StringVar(&c.from, "from", "", "whose `format` the file has: litellm or models.dev")
	flags.StringVar(&c.provider, "provider", "", "with --from: the models of this provider only, without its name in front of theirs")
	flags.BoolVar(&c.begins, "prefixes", false, "with --from: a model's prices are those of all whose names begin with its name, unless a longer one fits")
	flags.BoolVar(&c.tiers, "tiers", false, "with --from litellm: also the prices by service_tier, and batch; a request whose body is too long to read costs the highest of its model's")
	flags.StringVar(&c.unit, "unit", "micro-dollars", "with --from: the list's unit, micro-dollars or nano-dollars")
	operands, err := c.backend.parse(flags, args, env, priceUsage, 2, math.MaxInt, "set, load, diff, list or unset, and a namespace")
	if err != nil {
		return err
	}
	do, known := map[string]struct {
		run         func(ctx context.Context, operands []string) error
		least, most int
		want        string
	}{
		"set": {c.set, 3, 2 + len(tokens.KindNames), "NAMESPACE LIST MODEL KIND=PRICE…"}, "load": {c.load, 2, 2, "NAMESPACE LIST FILE"},
		"diff": {c.diff, 2, 2, "NAMESPACE LIST FILE"},
		"list": {c.list, 0, 1, "NAMESPACE [LIST]"}, "unset": {c.unset, 1, 2, "NAMESPACE LIST [MODEL]"},
	}[operands[0]]
	c.namespace = operands[1]
	switch rest := len(operands) - 2; {
	case !known:
		return fmt.Errorf("%w: want set, load, diff, list or unset, got %.80q", errUsage, operands[0])
	case rest < do.least || rest > do.most:
		return fmt.Errorf("%w: want %s", errUsage, do.want)
	case c.json && operands[0] != "list":
		return fmt.Errorf("%w: want --json with list", errUsage)
	case c.from != "" && priceFormats[c.from] == nil:
		return fmt.Errorf("%w: want --from litellm or models.dev, got %.80q", errUsage, c.from)
	case c.unit != "micro-dollars" && c.unit != "nano-dollars":
		return fmt.Errorf("%w: want --unit micro-dollars or nano-dollars, got %.80q", errUsage, c.unit)
	case c.from == "" && (c.provider != "" || c.begins), c.from != "litellm" && c.tiers:
		return fmt.Errorf("%w: want --from with --provider and --prefixes, and --from litellm with --tiers", errUsage)
	}
	return do.run(ctx, operands[2:])
}

type priceCommand struct {
	env       environment
	backend   backendFlags
	namespace string
	json      bool
	// from is the format of a file, empty for Weir's own. The others say what to take of another.
	from, provider, unit string
	begins, tiers        bool
}

func (c *priceCommand) set(ctx context.Context, operands []string) error {
	model, err := json.Marshal(operands[1])
	if err != nil {
		return err
	}
	var prices []string
	for _, operand := range operands[2:] {
		kind, price, ok := strings.Cut(operand, "=")
		if _, err := strconv.ParseFloat(price, 64); !ok || err != nil {
			return fmt.Errorf("%w: want a KIND=PRICE such as input=1.25, got %.80q", errUsage, operand)
		}
		prices = append(prices, fmt.Sprintf("%q: %s", kind, price))
	}
	models, err := config.ParsePrices(fmt.Appendf(nil, "{%s: {%s}}", model, strings.Join(prices, ",")))
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return c.put(ctx, operands[0], models, false)
}

func (c *priceCommand) load(ctx context.Context, operands []string) error {
	models, err := c.readPrices(operands[1])
	if err != nil {
		return err
	}
	return c.put(ctx, operands[0], models, true)
}

func (c *priceCommand) diff(ctx context.Context, operands []string) error {
	after, err := c.readPrices(operands[1])
	if err != nil {
		return err
	}
	found, err := c.find(ctx, operands[:1])
	if err != nil {
		return err
	}
	before := modelPrices{}
	for _, p := range found.Prices {
		before[p.Model] = p.Millionths
	}
	if writeDifferences(c.env.stdout, before, after) == 0 {
		fmt.Fprintln(c.env.stdout, "no difference")
	}
	return nil
}

func (c *priceCommand) put(ctx context.Context, list string, models modelPrices, instead bool) error {
	body := server.SetPrices{List: list, Models: models, Instead: instead}
	var changed server.Changed
	if err := c.backend.call(ctx, http.MethodPut, wire.PricesPath, url.Values{"namespace": {c.namespace}}, body, &changed); err != nil {
		return err
	}
	fmt.Fprintf(c.env.stdout, "%d set\n", changed.Changed)
	_, err := c.backend.tell(ctx, c.env.stdout, c.namespace, changed.Version, c.backend.wait, true)
	return err
}

func (c *priceCommand) unset(ctx context.Context, operands []string) error {
	return c.backend.remove(ctx, c.env.stdout, wire.PricesPath, queryOf(c.namespace, operands, "list", "model"), errors.New("no such prices were set"))
}

// find returns the prices that are set, of one list or of all.
func (c *priceCommand) find(ctx context.Context, operands []string) (server.Prices, error) {
	return get[server.Prices](ctx, &c.backend, wire.PricesPath, queryOf(c.namespace, operands, "list"))
}

func (c *priceCommand) list(ctx context.Context, operands []string) error {
	found, err := c.find(ctx, operands)
	if err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(c.env.stdout).Encode(found)
	}
	for _, p := range found.Prices {
		line := word(p.List) + " " + word(p.Model)
		for _, kind := range tokens.KindNames {
			if millionths, ok := p.Millionths[kind]; ok {
				line += " " + kind + "=" + decimal(millionths)
			}
		}
		fmt.Fprintln(c.env.stdout, line)
	}
	last := reach(&server.Overrides{Version: found.Version, Nodes: found.Nodes, Knowing: found.Knowing})
	if len(found.Prices) == 0 {
		last = "no prices are set"
	}
	fmt.Fprintln(c.env.stdout, last)
	return nil
}

// decimal writes millionths as a decimal number.
func decimal(millionths uint64) string {
	text := fmt.Sprintf("%d.%06d", millionths/tokens.Parts, millionths%tokens.Parts)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
