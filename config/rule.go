package config

import (
	"strconv"

	"weir/internal/fields"
	"weir/internal/wire"
	"weir/window"
)

const (
	maxRules = 256
	maxKey   = 16
)

// readRules reads the rules. Rules take missing fields from general, and missing fields of their
// response from answer.
func readRules(v *value, general *Rule, answer response, prices []*Prices) (rules []Rule) {
	v.array("rules", 1, maxRules, func(v *value) {
		rules = append(rules, Rule{Cost: 1, SyncRate: general.SyncRate, Share: general.Share, Headers: general.Headers, Response: general.Response})
		readRule(v, rules, answer, prices)
	})
	return rules
}

var (
	ruleFields = []field{
		{"name", required}, {"match", optional}, {"except", optional}, {"key", optional}, {"limits", required}, {"cost", optional},
		{"cost_on_response", optional}, {"price", optional}, {"reserve", optional}, {"most_per_request", optional}, {"on_failure", optional}, {"charge_when", optional},
		{"on_full", optional}, {"block", optional}, {"upstream", optional}, {"delay", optional}, {"cut", optional}, {"ask_for_usage", optional}, {"limit_tokens", optional}, {"warn_at", optional}, {"mode", optional}, {"count_rejected", optional},
		{"sync_rate", optional}, {"headers", optional}, {"response", optional}, {"overrides", optional}, {"reveal", optional}, {"classes", optional},
	}
	onFull  = []string{"refuse", "mark"}
	modes   = []string{"enforce", "shadow"}
	reveals = []string{"hash", "plain"}
)

// readRule reads the last of the rules. answer is the response that supplies missing fields.
func readRule(v *value, rules []Rule, answer response, prices []*Prices) {
	last := len(rules) - 1
	rule := &rules[last]
	sound := true
	if rate := v.get("sync_rate"); rate.given() { // first, because the limits are read by it
		rule.SyncRate, rule.Share = readSyncRate(rate)
	}
	v.report.shares.of = rule.Share
	given := map[string]*value{} // by name; fields without a case are read below, once the others are known
	v.object(`{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}`, ruleFields, func(name string, v *value) {
		given[name] = v
		switch name {
		case "name":
			text := v.bytes("a string of 1 to 64 of A-Za-z0-9_-", wire.MaxName, wire.IsNameByte)
			for i := range last {
				if text != "" && rules[i].Name == text {
					v.fail("want a unique name, got " + v.show() + " as in rules[" + strconv.Itoa(i) + "]")
					break
				}
			}
			rule.Name = text
		case "match":
			v.object(likeMatch, matchFields, rule.Match.read)
		case "except":
			v.array("exceptions", 0, maxExceptions, func(v *value) { rule.Except = append(rule.Except, readMatch(v)) })
		case "key":
			v.array("selectors", 0, maxKey, func(v *value) { rule.Key = append(rule.Key, readKeySelector(v, groupField)) })
		case "limits":
			before := len(v.report.found)
			v.array("limits", 1, wire.MaxLimits, func(v *value) {
				limit, from, hold := readLimit(v, limitFields)
				rule.Hold = max(rule.Hold, hold)
				if from != nil {
					from.Limit = len(rule.Limits)
					rule.LimitFrom = append(rule.LimitFrom, *from)
				}
				rule.Limits = append(rule.Limits, limit)
			})
			sound = len(v.report.found) == before
			window.SetOrdinals(rule.Limits)
		case "cost":
			readCost(v, rule)
		case "cost_on_response":
			readResponseCost(v, rule)
		case "charge_when":
			rule.ChargeWhen = readChargeWhen(v)
		case "on_full":
			rule.Marks = v.choice(onFull) == 1
		case "delay":
			readDelay(v, rule)
		case "block":
			readBlock(v, rule)
		case "upstream":
			rule.Upstream = v.boolean()
		case "limit_tokens":
			rule.LimitTokens = v.boolean()
		case "warn_at":
			rule.WarnAt = readWarnAt(v)
		case "mode":
			rule.Shadow = v.choice(modes) == 1
		case "reveal":
			rule.Reveal = readReveal(v)
		case "count_rejected":
			rule.CountRejected = v.boolean()
		case "headers":
			rule.Headers = readHeaderSet(v)
		case "response":
			answer.read(v)
			rule.Response = answer.complete()
		}
	})
	if v := given["overrides"]; v.given() {
		readOverrides(v, rule, sound)
	}
	cost, reserve := given["cost"], given["reserve"]
	if reserve.given() {
		readReserve(reserve, cost, rule)
	}
	if v := given["price"]; v.given() {
		readPrice(v, rule, prices, cost.given() || reserve.given())
	}
	if v := given["most_per_request"]; v.given() {
		readMostPerRequest(v, rule)
	}
	if v := given["on_failure"]; v.given() {
		readOnFailure(v, rule)
	}
	if rule.Marks && rule.CountRejected {
		given["on_full"].fail("want \"refuse\" with count_rejected, because a marked request takes nothing")
	}
	if rule.Block != 0 && len(rule.Limits) == wire.MaxLimits {
		given["block"].fail("want at most " + strconv.Itoa(wire.MaxLimits-1) + " limits with a block")
	}
	switch upstream := given["upstream"]; {
	case !rule.Upstream:
	case rule.Block != 0:
		upstream.fail("want no block beside, which would say how long a key waits")
	case len(rule.Limits) == wire.MaxLimits:
		upstream.fail("want at most " + strconv.Itoa(wire.MaxLimits-1) + " limits beside")
	}
	if v := given["delay"]; v.given() {
		checkDelay(v, rule)
	}
	if rule.Hold != 0 {
		checkHold(given["limits"], rule)
	}
	if v := given["cut"]; v.given() {
		readCut(v, rule)
	}
	if v := given["ask_for_usage"]; v.given() {
		readAsk(v, rule)
	}
	if rule.LimitTokens {
		checkLimitTokens(given["limit_tokens"], rule)
	}
	if rule.Headers&fields.Tokens != 0 {
		readTokenHeaders(given["headers"], rule)
	}
	if v := given["classes"]; v.given() {
		readClasses(v, rule)
	}
}

// checkHold reports fields that make no sense for a rule of in_flight, whose places are given back.
func checkHold(v *value, rule *Rule) {
	var beside string
	switch {
	case len(rule.Limits) > 1:
		beside = "other limits, which belong in a rule of their own"
	case rule.CountRejected:
		beside = "count_rejected"
	case rule.ChargeWhen != nil:
		beside = "charge_when"
	case rule.Usage != nil || rule.CostOnResponse != nil:
		beside = "cost_on_response"
	default:
		return
	}
	v.fail(`want no "in_flight" together with ` + beside)
}

// readShare reads a share of a whole, and returns it in thousandths. It is at most that many.
func readShare(v *value, most int64) uint16 {
	if v.kind == kindNumber {
		if n, whole := parseDecimal(v.raw).scaled(3); whole && n > 0 && n <= most {
			return uint16(n)
		}
	}
	bound := "below 1"
	if most == 1000 {
		bound = "up to 1"
	}
	v.wrong("a number above 0 and " + bound + ", in whole thousandths, such as 0.8")
	return 0
}

// maxWarnings is the most shares of a limit at which a rule warns.
const maxWarnings = 8

// readWarnAt reads the share of a limit at which a rule warns, or several.
func readWarnAt(v *value) (shares []uint16) {
	add := func(v *value) {
		share := readShare(v, 1000)
		if n := len(shares); share != 0 && n > 0 && share <= shares[n-1] {
			v.wrong("a share above the previous share")
		} else if share != 0 {
			shares = append(shares, share)
		}
	}
	if v.kind == kindArray {
		v.each("shares", 1, maxWarnings, add)
	} else {
		add(v)
	}
	return shares
}

// readReveal reads how much of a key people may see.
func readReveal(v *value) uint8 {
	switch v.kind {
	case kindString:
		switch index(reveals, v.text) {
		case 0:
			return 0
		case 1:
			return RevealPlain
		}
	case kindNumber:
		if n, whole := parseDecimal(v.raw).scaled(0); whole && n >= 1 && n <= maxReveal {
			return uint8(n)
		}
	}
	v.wrong(`"hash", "plain", or an integer from 1 to 64`)
	return 0
}

// maxReveal is the most characters that a rule may reveal, unless it reveals all.
const maxReveal = 64

var blockFields = []field{{"for", required}, {"extend", optional}}

// readBlock reads how long a key stays refused after a refusal.
func readBlock(v *value, rule *Rule) {
	if v.kind != kindObject {
		rule.Block = v.duration(Second, Duration(window.MaxBlock))
		return
	}
	v.object(`{"for": "10m", "extend": true}`, blockFields, func(name string, v *value) {
		if name == "for" {
			rule.Block = v.duration(Second, Duration(window.MaxBlock))
		} else {
			rule.Extend = v.boolean()
		}
	})
}

const (
	maxDelay = 5 * 60 * Second
	maxQueue = 10_000
)

var delayFields = []field{{"most", required}, {"queue", required}}

// readDelay reads how requests wait for room.
func readDelay(v *value, rule *Rule) {
	v.object(`{"most": "2s", "queue": 100}`, delayFields, func(name string, v *value) {
		if name == "most" {
			rule.Delay = v.duration(Millisecond, maxDelay)
		} else {
			rule.Queue = int(v.integer(1, maxQueue))
		}
	})
}

// checkDelay reports fields that only make sense for a rule that refuses at once.
func checkDelay(v *value, rule *Rule) {
	switch {
	case rule.Block != 0:
		v.fail("want no block with it, because a request that waits is not refused")
	case rule.Marks:
		v.fail(`want on_full "refuse" with it, because a marked request does not wait`)
	case rule.CountRejected:
		v.fail("want no count_rejected with it, because a request that waits is not refused")
	}
}
