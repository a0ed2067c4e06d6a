package ui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/wire"
)

// LimitsAsked are limits that the page asks for, as overrides of its users.
type LimitsAsked struct {
	Rule string `json:"rule"`
	// Limits has a number of hits for each limit of the rule, or null for the configuration's
	// number. If Limits itself is null, the page's users have the configuration's.
	Limits []*uint64 `json:"limits"`
}

// setLimit sets other limits for the page's users of a rule, or removes them.
func (v *View) setLimit(asked LimitsAsked) error {
	rule, err := v.shared(asked.Rule)
	if err != nil {
		return err
	}
	// The page's request may end sooner, but its change is carried out.
	ctx, cancel := context.WithTimeout(context.Background(), backend.Timeout)
	defer cancel()
	// Only one change at a time, or else two pages might disagree with the store.
	v.setting.Lock()
	defer v.setting.Unlock()
	by := v.backend.By(&backend.By{Name: "page", Address: "127.0.0.1", Reason: "limits of the page's users", Log: v.o.Logger})
	keys := usersOf(rule)
	if asked.Limits == nil {
		if _, _, err := by.UnsetOverridesOf(ctx, v.o.Config.Namespace, rule.Name, keys); err != nil {
			return fmt.Errorf("the store: %w", err)
		}
		v.noteSet(rule.Name, nil)
		return nil
	}
	limits, quotas, err := overrideOf(rule, asked.Limits)
	if err != nil {
		return err
	}
	set := make([]wire.Override, len(keys))
	for i, key := range keys {
		set[i] = wire.Override{Rule: rule.Name, Values: key, Limits: limits}
	}
	if _, err := by.ForceOverrides(ctx, v.o.Config.Namespace, set...); err != nil {
		return fmt.Errorf("the store: %w", err)
	}
	v.noteSet(rule.Name, quotas)
	return nil
}

// noteSet records the limits of the page's users in a rule; nil are the configuration's.
func (v *View) noteSet(rule string, quotas []uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.set[rule] = quotas; quotas == nil {
		delete(v.set, rule)
	}
}

// overrideOf returns the limits of an override with these hits in a rule's windows, and the hits
// that each limit allows at once.
func overrideOf(rule *config.Rule, asked []*uint64) (limits []wire.OverrideLimit, quotas []uint64, err error) {
	if len(asked) != len(rule.Limits) {
		return nil, nil, fmt.Errorf("limits: want %d, as rule %s has, got %d", len(rule.Limits), rule.Name, len(asked))
	}
	if !slices.ContainsFunc(asked, func(hits *uint64) bool { return hits != nil }) {
		return nil, nil, errors.New("limits: want a number for at least one of the limits")
	}
	for i, l := range rule.Limits {
		to, quota := wire.OverrideLimit{Max: l.Max, Burst: l.Burst, WidthMillis: uint64(l.Width / int64(time.Millisecond))}, l.Quota()
		if asked[i] != nil {
			if to.Max, quota = *asked[i], *asked[i]; quota > maxLimit {
				return nil, nil, fmt.Errorf("limits[%d]: want 0 to %d, got %d", i, maxLimit, quota)
			}
			if l.Kind.Bursts() {
				to.Burst = max(1, quota)
			}
		}
		limits, quotas = append(limits, to), append(quotas, quota)
	}
	if !wire.Fits(rule.Limits, limits) {
		return nil, nil, fmt.Errorf("limits: rule %s can't have these", rule.Name)
	}
	return limits, quotas, nil
}

// usersOf returns the keys of the page's users in a rule.
func usersOf(rule *config.Rule) (keys [][]string) {
	for user := range maxUsers {
		key := values(rule, user)
		if len(keys) > 0 && slices.Equal(key, keys[0]) {
			break // the key is the same for all users
		}
		keys = append(keys, key)
	}
	return keys
}
