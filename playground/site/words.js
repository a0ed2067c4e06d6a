import { count, duration } from "./parts.js";

const unbounded = 2 ** 53 - 1;
const list = (numbers) => new Intl.ListFormat("en").format(numbers.map(String));

// words describes whether the proxies of weir run share their limits, in a few words and a sentence.
// level is "shared", "degraded", or "alone" where the configuration wants it so. refused returns how many
// requests a second a rule refuses: the one that refuses most is the example, or else that of the page's traffic.
export function words({ nodes, rules, failure, timeout_ms: timeout }, { backend, faults, limits, load, looked }, moment, refused) {
  const most = rules.reduce((a, b) => (!b.shadow && refused(b.name) > (a ? refused(a.name) : 0) ? b : a), undefined);
  const rule = most ?? rules.find(({ name }) => name === load.rule) ?? rules[0];
  const limit = limits?.[rule.name]?.[0] ?? rule.limits[0].limit;
  const within = `in ${duration(rule.limits[0].window_ms)}`;
  const each = nodes.length;
  const alone = (groups) => `up to ${groups === 2 ? "twice" : `${groups} times`} the limit (${rule.name}: ${count(groups * limit)} in place of ${count(limit)} ${within})`;
  if (!backend) {
    return each === 1
      ? { level: "alone", title: "One proxy", text: "The configuration has no backend: no other proxy shares these limits." }
      : { level: "alone", title: "Not shared", text: `The configuration has no backend. Each proxy counts alone: ${alone(each)}.` };
  }
  const slow = faults.delay_ms >= timeout;
  const lost = faults.away || slow ? each : faults.cut.length;
  if (lost > 0) {
    let title = "Backend away";
    let who = each === 1 ? "The proxy" : "Each proxy";
    if (!faults.away && slow) title = "Backend too slow";
    else if (!faults.away) {
      title = `${lost === 1 ? "Proxy" : "Proxies"} ${list(faults.cut)} cut off`;
      who = lost === 1 ? `Proxy ${faults.cut[0]}` : "Each of these proxies";
    }
    const why = !faults.away && slow ? `Its answers take longer than the ${timeout} ms that proxies wait. ` : "";
    if (failure === "allow") return { level: "degraded", title, text: `${why}${who} lets all pass, as on_backend_failure says: nothing is limited there.` };
    if (failure === "deny") return { level: "degraded", title, text: `${why}${who} refuses all, as on_backend_failure says.` };
    // Proxies that are not cut off count together.
    const groups = lost + (lost < each ? 1 : 0);
    return { level: "degraded", title, text: `${why}${who} counts alone${groups > 1 ? `: ${alone(groups)}` : ""}.` };
  }
  if (looked.failed) return { level: "degraded", title: "Store away", text: `Each proxy counts alone${each > 1 ? `: ${alone(each)}` : ""}.` };
  const overshoot = moment?.rules[rules.indexOf(rule)]?.overshoot ?? 0;
  if (overshoot > 0 && overshoot < unbounded) {
    return { level: "degraded", title: "Backend answers again", text: `What passed without it is counted now: a key of ${rule.name} may be up to ${count(overshoot)} above its limit of ${count(limit)}, and gets nothing until that has worn off.` };
  }
  if (faults.delay_ms > 0) return { level: "degraded", title: "Backend slow", text: `Its answers come ${faults.delay_ms} ms late: requests that ask it wait for that. The limits hold.` };
  const by = rules.length === 1 ? `by one limit of ${count(limit)} ${within} for each key` : `by ${rules.length} rules`;
  return { level: "shared", title: "Shared", text: `${each === 1 ? "One proxy counts" : `${each} proxies count together`}, ${by}.` };
}
