package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"weir/controller/policy"
	"weir/internal/controllerflags"
)

// showPolicies runs weir policy.
func showPolicies(ctx context.Context, scheme *runtime.Scheme, args []string) error {
	flags := flag.NewFlagSet("weir policy", flag.ContinueOnError)
	namespace := controllerflags.DefinePolicy(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return errors.New("want flags only")
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return show(ctx, c, os.Stdout, *namespace)
}

// show prints policies with their targets and conditions, and then which rules are in force where.
func show(ctx context.Context, c client.Client, out io.Writer, namespace string) error {
	r := &reconciler{Client: c, writer: &writer{}}
	if err := r.writer.find(c.RESTMapper()); err != nil {
		return err
	}
	resources, err := r.read(ctx)
	if err != nil {
		return err
	}
	written, err := r.owned(ctx)
	if err != nil {
		return err
	}
	// What is in force is in plugins, whose configurations all have the controller's fields.
	base, there := []byte("{}"), map[types.NamespacedName]bool{}
	for _, o := range written {
		there[gatewayOf(o)] = true
		if fields := configurationOf(o); fields != nil {
			delete(fields, "rules")
			delete(fields, "namespace")
			if base, err = json.Marshal(fields); err != nil {
				return err
			}
		}
	}
	resources.Gateways = slices.DeleteFunc(resources.Gateways, func(g *policy.Gateway) bool { return !there[g.NamespacedName] })
	planner, err := policy.NewPlanner(base)
	if err != nil {
		return err
	}
	rows := []string{"GATEWAY\tWHERE\tRULE\tLIMITS\tPOLICY"}
	planner.Told = func(g *policy.Gateway, place string, rules []policy.Rule) {
		for _, r := range rules {
			if namespace == "" || g.Namespace == namespace || r.Policy.Namespace == namespace || strings.Contains(place+"/", " "+namespace+"/") {
				rows = append(rows, strings.Join([]string{g.String(), place, r.Name, limitsOf(r.Limits), r.Policy.String()}, "\t"))
			}
		}
	}
	plan := planner.Plan(resources)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POLICY\tTARGETS\tACCEPTED\tPROGRAMMED\tSAID")
	for _, o := range plan.Outcomes {
		if namespace != "" && o.Policy.Namespace != namespace {
			continue
		}
		var targets, said []string
		for i := range o.Policy.Spec.TargetRefs {
			targets = append(targets, o.Policy.Spec.TargetRefs[i].In(o.Policy))
		}
		state := map[string]string{}
		for _, kind := range []string{"Accepted", "Programmed", "Overridden"} {
			if condition := meta.FindStatusCondition(o.Policy.Status.Conditions, kind); condition != nil {
				state[kind] = string(condition.Status)
				if routine := condition.Message == "accepted" || kind == "Programmed" && condition.Status == "True"; !routine {
					said = append(said, strings.Join(strings.FieldsFunc(condition.Message, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }), " "))
				}
			}
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\n", o.Policy.Namespace, o.Policy.Name, strings.Join(targets, ", "), cmp.Or(state["Accepted"], "-"), cmp.Or(state["Programmed"], "-"), strings.Join(said, "; "))
	}
	if len(rows) > 1 {
		fmt.Fprintln(w, "\n"+strings.Join(slices.Compact(rows), "\n"))
	}
	return w.Flush()
}

// limitsOf says a rule's limits in a few words.
func limitsOf(text json.RawMessage) string {
	var limits []struct {
		Limit     any    `json:"limit"`
		Window    any    `json:"window"`
		Algorithm string `json:"algorithm"`
	}
	if json.Unmarshal(text, &limits) != nil {
		return string(text)
	}
	all := make([]string, len(limits))
	for i, l := range limits {
		all[i] = fmt.Sprintf("%v a %v", l.Limit, l.Window)
		if l.Window == nil {
			all[i] = fmt.Sprintf("%v at a time", l.Limit)
		}
	}
	return strings.Join(all, ", ")
}
