package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"weir/config"
	"weir/internal/named"
	"weir/internal/server"
)

// configuredRule finds a namespace's rule in the configuration file, and returns both.
func configuredRule(file, namespace, name string, env environment) (*config.Rule, *config.Config, error) {
	read, err := readConfiguration(file, env)
	if err != nil {
		return nil, nil, err
	}
	parsed := read.Config
	if parsed.Namespace != namespace {
		return nil, nil, fmt.Errorf("--config: %s is of the namespace %s, not of %.80q", file, parsed.Namespace, namespace)
	}
	var names []string
	for i := range parsed.Rules {
		rule := &parsed.Rules[i]
		if names = append(names, rule.Name); rule.Name == name {
			if rule.SyncRate < 0 {
				return nil, nil, fmt.Errorf("--config: each proxy counts %s alone, as its sync_rate is below 0, so the backend does not know it", name)
			}
			return rule, parsed, nil
		}
	}
	return nil, nil, fmt.Errorf("--config: %s has no rule %.80q, but %s%s", file, name, strings.Join(names, ", "), meant(name, names))
}

// checkKey checks the values of a rule's key. Errors wrap [errUsage].
func checkKey(rule *config.Rule, key []string) error {
	if err := named.Check(rule, key); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return nil
}

// knownRule returns an error if no node has recently reported a rule. Nodes report the rules that
// requests matched in the last minute or two.
func (f *backendFlags) knownRule(ctx context.Context, namespace, name string) error {
	var top server.Top
	if err := f.call(ctx, http.MethodGet, server.TopPath, url.Values{"namespace": {namespace}}, nil, &top); err != nil {
		return err
	}
	var names []string
	for i := range top.Rules {
		if names = append(names, top.Rules[i].Rule); top.Rules[i].Rule == name {
			return nil
		}
	}
	switch {
	case top.Nodes == 0:
		return fmt.Errorf("no node of namespace %s has reported in the last half minute", namespace)
	case len(names) == 0:
		return errors.New("no node has seen a request of any rule in the last two minutes")
	}
	return fmt.Errorf("no node has seen a request of rule %.80q in the last two minutes, but of %s%s", name, strings.Join(names, ", "), meant(name, names))
}

// meant returns a question for a name that may have been meant.
func meant(name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}
