package ui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/named"
	"weir/internal/store"
	"weir/internal/wire"
)

// setLimits are the limits that the page has set for a rule.
type setLimits struct {
	// users are the limits of the page's users, or nil if they have the configuration's.
	users []uint64
	// keys are the other keys with limits from the page.
	keys [][]string
}

// LimitsAsked are limits that the page asks for, as overrides.
type LimitsAsked struct {
	Rule string `json:"rule"`
	// Key has the values of the key that gets the limits. If it is empty, the page's users get
	// them.
	Key []string `json:"key"`
	// Limits has a number of hits for each limit of the rule, or null for the configuration's
	// number. If Limits itself is null, all overrides that the page has set for the rule are
	// removed.
	Limits []*uint64 `json:"limits"`
}

// setLimit sets other limits for keys of a rule, or removes those that the page has set.
func (v *View) setLimit(asked LimitsAsked) error {
	rule, err := v.shared(asked.Rule)
	if err != nil {
		return err
	}
	if len(asked.Key) > 0 {
		if err := named.Check(rule, asked.Key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	// The page's request may end sooner, but its change is carried out.
	ctx, cancel := context.WithTimeout(context.Background(), backend.Timeout)
	defer cancel()
	// Only one change at a time, or else two pages might disagree with the store.
	v.setting.Lock()
	defer v.setting.Unlock()
	if asked.Limits == nil {
		return v.unsetLimits(ctx, rule)
	}
	limits, quotas, err := overrideOf(rule, asked.Limits)
	if err != nil {
		return err
	}
	keys := usersOf(rule)
	if len(asked.Key) > 0 {
		keys = [][]string{asked.Key}
	}
	set := make([]wire.Override, len(keys))
	for i, key := range keys {
		set[i] = wire.Override{Rule: rule.Name, Values: key, Limits: limits}
	}
	_, err = v.backend.By(nil).ForceOverrides(ctx, v.o.Config.Namespace, set...)
	switch {
	case errors.Is(err, store.ErrInvalid):
	case err != nil:
		// If only the answer is lost, they are set, and have to be removed later.
		v.noteSet(rule.Name, asked.Key, nil)
	default:
		v.noteSet(rule.Name, asked.Key, quotas)
		return nil
	}
	return fmt.Errorf("the store: %w", err)
}

// noteSet records that a key of a rule has limits from the page, or the limits of the page's users.
func (v *View) noteSet(rule string, key []string, users []uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	set := v.set[rule]
	if set == nil {
		set = &setLimits{}
		v.set[rule] = set
	}
	switch {
	case len(key) == 0 && users != nil:
		set.users = users
	case len(key) > 0 && !slices.ContainsFunc(set.keys, func(known []string) bool { return slices.Equal(known, key) }):
		set.keys = append(set.keys, key)
	}
}

// unsetLimits removes the overrides that pages have set for a rule.
func (v *View) unsetLimits(ctx context.Context, rule *config.Rule) error {
	keys := usersOf(rule) // the store may have them from an earlier run
	v.mu.Lock()
	if set := v.set[rule.Name]; set != nil {
		keys = append(keys, set.keys...)
	}
	v.mu.Unlock()
	for _, key := range keys {
		if _, _, err := v.backend.By(nil).UnsetOverrides(ctx, v.o.Config.Namespace, rule.Name, key); err != nil {
			return fmt.Errorf("the store: %w", err)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.set, rule.Name)
	return nil
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
	for i := range rule.Limits {
		l := &rule.Limits[i]
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
