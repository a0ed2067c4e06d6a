//go:build linux

package gateway

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/must"
)

// podsAreApart has Kubernetes' controllers make pods of charts/values/tls.yaml, and its scheduler choose their nodes. Then the budget
// lets one of two be evicted. No kubelet runs: the test says that pods are ready.
func podsAreApart(t *testing.T, c *cluster, _ *proxy) {
	const labels = "matchLabels: {app.kubernetes.io/name: weir}"
	values := must.Text(t, "../../charts/values/tls.yaml")
	if !strings.Contains(values, labels) {
		t.Fatalf("charts/values/tls.yaml has no %s", labels)
	}
	c.write(t, "scheduler.yaml", must.Text(t, "testdata/scheduler.yaml"))
	c.apply(t, must.Text(t, "testdata/nodes.yaml"))
	c.command(t, "kubectl", "apply", "--server-side", "--force-conflicts", "--subresource=status", "-f", "apply.yaml")
	c.command(t, "kubectl", "taint", "nodes", "--all", "node.kubernetes.io/not-ready-") // as new nodes have it
	c.run(t, c.environment, "kube-scheduler", "--config=scheduler.yaml", "--bind-address=127.0.0.1", "--cert-dir=certs")
	c.run(t, c.environment, "kube-controller-manager", "--kubeconfig=kubeconfig", "--bind-address=127.0.0.1", "--cert-dir=certs", "--leader-elect=false",
		"--controllers=deployment-controller,replicaset-controller,disruption-controller")
	pods := func(namespace, shown string) []string {
		return strings.Fields(c.command(t, "kubectl", "get", "pods", "-n", namespace, "-o", "jsonpath={.items[*]."+shown+"}"))
	}
	for _, of := range []struct{ namespace, labels, nodes string }{{"apart", labels, "big small"}, {"together", "matchLabels: {app: weir}", "big big"}} {
		c.command(t, "kubectl", "create", "namespace", of.namespace)
		c.write(t, "values.yaml", strings.Replace(values, labels, of.labels, 1))
		c.apply(t, c.command(t, "helm", "template", "weir", "oci://"+c.registry+"/weir-chart", "--plain-http", "--version", "0.1.0", "-n", of.namespace, "-f", "values.yaml", "--kube-version", kubernetes,
			"--set", "backend.store.kind=url,backend.replicas=2"))
		waitFor(t, "nodes of two pods", func() bool { return len(pods(of.namespace, "spec.nodeName")) == 2 })
		must.Equal(t, strings.Join(slices.Sorted(slices.Values(pods(of.namespace, "spec.nodeName"))), " "), of.nodes, "%s: pods are on", of.labels)
	}
	both := pods("apart", "metadata.name")
	for _, pod := range both {
		c.command(t, "kubectl", "patch", "pod", "-n", "apart", pod, "--subresource=status", "--type=merge", "-p", `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`)
	}
	waitFor(t, "budget for one pod", func() bool {
		return c.command(t, "kubectl", "get", "pdb", "-n", "apart", "-o", "jsonpath={.items[*].status.disruptionsAllowed}") == "1"
	})
	var said [2]string
	for i, pod := range both {
		c.write(t, "evict.yaml", `{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "`+pod+`", "namespace": "apart"}}`)
		said[i] = c.try("kubectl", "create", "--raw", "/api/v1/namespaces/apart/pods/"+pod+"/eviction", "-f", "evict.yaml")
	}
	must.Equal(t, said[0], "", "the first pod's eviction")
	must.Contains(t, said[1], "violate the pod's disruption budget", "the second pod's eviction")
}
