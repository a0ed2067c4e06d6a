import { count, duration } from "./parts.js";

const unbounded = 2 ** 53 - 1;
const list = (numbers) => new Intl.ListFormat("en").format(numbers.map(String));

// words describes the state of the nodes of weir run, and its meaning for the limit.
export function words({ nodes, rules, failure, timeout_ms: timeout }, { backend, faults, watched }, moment) {
  const limit = watched.limit;
  const within = `in ${duration(watched.window_ms)}`;
  const each = nodes.length;
  if (!backend) return `There is no backend: each node counts alone, and together they may pass up to ${count(limit * each)} of a key ${within}.`;
  const slow = faults.delay_ms >= timeout;
  const lost = faults.away || slow ? each : faults.cut.length;
  if (lost > 0) {
    let what = `The backend is away: ${each === 1 ? "the node counts" : "each node counts"} alone`;
    if (!faults.away) {
      what = slow
        ? `The backend’s answers take longer than the ${timeout} ms that nodes wait: each node counts alone`
        : `${lost === 1 ? "Node" : "Nodes"} ${list(faults.cut)} ${lost === 1 ? "is" : "are"} cut off from the backend, and ${lost === 1 ? "counts" : "count, each,"} alone`;
    }
    if (failure === "allow") return `${what.replace(/counts? alone|count, each, alone/, "lets all pass")}: nothing is limited there, as on_backend_failure says.`;
    if (failure === "deny") return `${what.replace(/counts? alone|count, each, alone/, "refuses all")}, as on_backend_failure says.`;
    // Nodes that are not cut off count together.
    const groups = lost + (lost < each ? 1 : 0);
    return `${what}, and together they may pass up to ${count(groups * limit)} of a key ${within}, which is ${groups} × ${count(limit)}. ` +
      "Nothing is lost: what they pass meanwhile is counted when the backend can be reached.";
  }
  const overshoot = moment?.rules[rules.findIndex((rule) => rule.name === watched.rule)]?.overshoot ?? 0;
  if (overshoot > 0 && overshoot < unbounded) {
    return `The backend is there, and the hits that passed without it are counted. They still count: a key may be up to ${count(overshoot)} above its limit of ${count(limit)}, and gets nothing until they have worn off.`;
  }
  if (faults.delay_ms > 0) return `The backend’s answers come ${faults.delay_ms} ms late: requests wait for them where nothing is leased, and the limit of ${count(limit)} ${within} holds.`;
  return `${each === 1 ? "The node counts" : "All nodes count together"}, by one ${watched.algorithm} of ${count(limit)} ${within} for each key.`;
}
