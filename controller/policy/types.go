// Package policy decides which rules of RateLimitPolicies are in force where. It reads no clock and asks no server:
// [Resources] is what is there, and a [Plan] is what follows.
package policy

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Version is the group and version of the policies.
var Version = schema.GroupVersion{Group: "weir.dev", Version: "v1alpha1"}

// AddToScheme adds the types of the group.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(Version, &RateLimitPolicy{}, &RateLimitPolicyList{})
	metav1.AddToGroupVersion(s, Version)
	return nil
}

// RateLimitPolicy has rules for what it is attached to.
type RateLimitPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitzero"`
}

// Spec has one of Rules, Defaults and Overrides. Rules are atomic defaults.
type Spec struct {
	TargetRefs []TargetRef `json:"targetRefs"`
	// Counters is the namespace of counters that others may share, if the policy's Namespace grants it.
	Counters  string            `json:"counters,omitempty"`
	Rules     []json.RawMessage `json:"rules,omitempty"`
	Defaults  *Block            `json:"defaults,omitempty"`
	Overrides *Block            `json:"overrides,omitempty"`
}

// TargetRef is what a policy is for.
type TargetRef struct {
	gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:",inline"`
	// Namespace is the target's, if it is not the policy's. It has to grant that.
	Namespace gatewayv1.Namespace `json:"namespace,omitempty"`
}

// Block is how rules meet those of policies for more, or for less.
type Block struct {
	// Strategy is atomic, which it is if empty, or merge: by the rules' names.
	Strategy string            `json:"strategy,omitempty"`
	Rules    []json.RawMessage `json:"rules"`
}

// Status says what has become of a policy.
type Status struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// InForce is the last spec that was accepted. It stays in force if the next one is refused.
	InForce *InForce `json:"inForce,omitempty"`
}

// InForce is an accepted spec.
type InForce struct {
	Generation int64 `json:"generation"`
	Spec       Spec  `json:"spec"`
}

// RateLimitPolicyList is a list of policies.
type RateLimitPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []RateLimitPolicy `json:"items"`
}

// DeepCopyObject copies the policy. Specs are never changed in place, so that copies share them.
func (p *RateLimitPolicy) DeepCopyObject() runtime.Object {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	c.Status.Conditions = slices.Clone(p.Status.Conditions)
	return &c
}

// DeepCopyObject copies the list.
func (l *RateLimitPolicyList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = make([]RateLimitPolicy, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*RateLimitPolicy)
	}
	return &c
}

// block is the only one of the spec's blocks, with its path in the spec.
func (s *Spec) block() (b *Block, path string, overrides bool) {
	switch {
	case s.Overrides != nil:
		return s.Overrides, "spec.overrides.", true
	case s.Defaults != nil:
		return s.Defaults, "spec.defaults.", false
	}
	return &Block{Rules: s.Rules}, "spec.", false
}
