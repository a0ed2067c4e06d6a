package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// What is in force is in plugins. Those of a Gateway have the fields of its controller: one without shared limits has no replicas.
	bases := map[types.NamespacedName]fields{}
	for _, o := range slices.SortedFunc(maps.Values(written), func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) }) {
		for _, configuration := range configurationsOf(o) {
			g := gatewayOf(o)
			if bases[g] == nil {
				bases[g] = fields{}
			}
			maps.Copy(bases[g], configuration)
			delete(bases[g], "rules")
			delete(bases[g], "namespace")
		}
	}
	resources.Gateways = slices.DeleteFunc(resources.Gateways, func(g *policy.Gateway) bool { return bases[g.NamespacedName] == nil })
	rows := []string{"GATEWAY\tWHERE\tRULE\tLIMITS\tPOLICY"}
	for i, first := range resources.Gateways {
		same := func(g *policy.Gateway) bool {
			return reflect.DeepEqual(bases[g.NamespacedName], bases[first.NamespacedName])
		}
		if slices.ContainsFunc(resources.Gateways[:i], same) {
			continue // planned with it
		}
		base, err := json.Marshal(bases[first.NamespacedName])
		if err != nil {
			return err
		}
		planner, err := policy.NewPlanner(base)
		if err != nil {
			if namespace == "" || first.Namespace == namespace {
				rows = append(rows, first.String()+"\tits plugin can't be read: "+err.Error())
			}
			continue
		}
		planner.Told = func(g *policy.Gateway, place string, rules []policy.Rule) {
			for _, r := range rules {
				if same(g) && (namespace == "" || g.Namespace == namespace || r.Policy.Namespace == namespace || strings.Contains(place+"/", " "+namespace+"/")) {
					rows = append(rows, strings.Join([]string{g.String(), place, r.Name, limitsOf(r.Limits), r.Policy.String()}, "\t"))
				}
			}
		}
		planner.Plan(resources)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POLICY\tTARGETS\tACCEPTED\tPROGRAMMED\tSAID")
	for _, p := range resources.Policies {
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		var targets, said []string
		for i := range p.Spec.TargetRefs {
			targets = append(targets, p.Spec.TargetRefs[i].In(p))
		}
		state := map[string]string{}
		for _, kind := range []string{"Accepted", "Programmed", "Overridden"} {
			if condition := meta.FindStatusCondition(p.Status.Conditions, kind); condition != nil {
				state[kind] = string(condition.Status)
				if routine := condition.Message == "accepted" || kind == "Programmed" && condition.Status == "True"; !routine {
					said = append(said, strings.Join(strings.FieldsFunc(condition.Message, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }), " "))
				}
			}
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\n", p.Namespace, p.Name, strings.Join(targets, ", "), cmp.Or(state["Accepted"], "-"), cmp.Or(state["Programmed"], "-"), strings.Join(said, "; "))
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
