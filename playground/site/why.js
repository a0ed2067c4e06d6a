import { Table, byID, count, duration, keyFields, say } from "./parts.js";

// The time between two requests, in milliseconds.
const often = 1000;

// Why explains why a key of weir run's rules is refused: a key that the visitor chooses or types.
export class Why {
  // setup is the setup of weir run.
  constructor(setup) {
    this.rules = setup.rules.filter((rule) => rule.shared);
    this.failure = setup.failure;
    this.section = byID("why");
    this.form = this.section.querySelector("form");
    const options = this.rules.map((rule) => new Option(rule.name, rule.name));
    byID("why-rule").replaceChildren(...options);
    byID("why-rule").onchange = () => this.fields();
    this.form.onsubmit = (event) => {
      event.preventDefault();
      this.ask(byID("why-rule").value, { key: [...this.form.querySelectorAll("input")].map((input) => input.value) });
    };
    byID("why-limits").replaceChildren();
    this.table = new Table(byID("why-limits"), "", ["Limit", "Used", "Left", "Room for more", "All back"], "How the key stands");
    this.facts = byID("why-facts");
    this.forget();
    this.fields();
  }

  // forget shows no key.
  forget() {
    this.asked = undefined;
    say(byID("why-told"), "");
    this.facts.replaceChildren();
    byID("why-limits").hidden = true;
  }

  // fields shows a field for each part of the key of the chosen rule.
  fields(values) {
    const rule = this.rules.find(({ name }) => name === byID("why-rule").value);
    const parts = rule?.key ?? [];
    keyFields(byID("why-key"), parts, values ?? parts.map((part) => (part.startsWith("literal ") ? part.slice("literal ".length) : "")));
  }

  // rule puts a rule into the form.
  rule(name, values) {
    if (!this.rules.some((rule) => rule.name === name)) return;
    byID("why-rule").value = name;
    this.fields(values);
  }

  // opened puts the rule that was opened last into the form.
  opened(open) {
    const last = [...open].at(-1);
    if (last !== this.last && last !== undefined && last !== byID("why-rule").value) this.rule(last);
    this.last = last;
  }

  // choose asks about a key of a table, by its hash.
  choose(rule, { hash, values }) {
    const whole = values && !values.some(({ cut }) => cut) ? values.map(({ text }) => text) : undefined;
    this.rule(rule, whole);
    this.ask(rule, { id: hash, name: values?.map(({ text, cut }) => (cut ? `${text}…` : text)).join(" ") });
    this.section.scrollIntoView({ block: "nearest" });
    byID("why-title").focus({ preventScroll: true });
  }

  ask(rule, { key, id, name }) {
    const query = new URLSearchParams({ rule });
    if (id) query.set("id", id);
    for (const value of key ?? []) query.append("key", value);
    this.forget();
    this.asked = { query: `${query}`, name };
    this.again();
  }

  // again updates the answer, unless that was done just now.
  async again(state = this.state) {
    this.state = state;
    const { asked } = this;
    if (!asked || asked.refused || asked.running || Date.now() - (asked.at ?? 0) < often) return;
    asked.running = true;
    asked.at = Date.now();
    let told;
    let trouble;
    try {
      const response = await fetch(`live/why?${asked.query}`, { cache: "no-store", credentials: "omit" });
      if (response.ok) told = await response.json();
      else {
        trouble = (await response.text()).trim();
        asked.refused = response.status < 500;
      }
    } catch (error) {
      trouble = `weir run does not answer: ${error.message}`;
    }
    asked.running = false;
    if (asked !== this.asked) return; // another key was chosen meanwhile
    if (trouble) {
      say(byID("why-told"), trouble);
      this.facts.replaceChildren();
      byID("why-limits").hidden = true;
      return;
    }
    this.show(told, asked.name);
  }

  show(told, name) {
    const rule = this.rules.find((r) => r.name === told.rule);
    const key = told.key?.join(" ") || name || (rule.key ? told.hash : "");
    const limits = told.limits.filter((l) => l.algorithm !== "block").map((l, i) => ({ ...l, title: title(l, rule.limits[i]) }));
    const block = told.limits.find((l) => l.algorithm === "block" && l.used > 0);
    say(byID("why-told"), verdict(rule, key, limits, block));
    this.table.show(limits.map((l) => [l.title, count(l.used), l.left === undefined ? "–" : count(l.left), room(l), l.reset_ms === undefined || l.algorithm === "in_flight" ? "–" : time(l.reset_ms)]), "");
    byID("why-limits").hidden = false;
    const facts = this.about(told, rule, block);
    if (limits.some((l) => l.left === 0)) facts.push("Hits that nodes have leased count as used. A node that has leased hits lets requests pass although nothing is left here.");
    while (this.facts.children.length > facts.length) this.facts.lastChild.remove();
    facts.forEach((fact, i) => say(this.facts.children[i] ?? this.facts.appendChild(document.createElement("li")), fact));
  }

  // about returns the facts besides the limits.
  about(told, rule, block) {
    const facts = [];
    if (told.override) {
      const limits = told.override.limits.map((l) => `${count(l.limit)} in ${duration(l.width_ms)}`).join(", ");
      const until = told.override.until ? `until ${new Date(told.override.until).toLocaleString()}` : "until somebody unsets it";
      facts.push(`An override is in force: ${limits}, ${until}.`);
    } else if (told.listed) facts.push("The configuration has limits for this key, under overrides.keys. No override was set at run time.");
    else facts.push("No override is in force: the limits are the rule’s.");
    if (told.varies) facts.push("Requests of this key can have other limits, by a value in the request. The numbers here are for the limits above.");
    if (block) facts.push(`A block is in force, and ends in ${time(block.reset_ms)}${block.reset_ms === undefined ? "" : " at the latest, unless it is prolonged"}.`);
    if (rule.costly) facts.push("A request of this rule can take more than one hit. It is refused when fewer are left.");
    for (const { node, places, oldest_ms: oldest } of told.holders ?? []) facts.push(`Node ${node} holds ${count(places)}, the oldest for ${time(oldest)}.`);
    const { faults } = this.state ?? {};
    if (faults && (faults.away || faults.cut.length > 0)) {
      const does = { allow: "let all pass", deny: "refuse all" }[this.failure] ?? "decide alone, by what they know";
      facts.push(`These are the backend’s numbers. Nodes that do not reach it ${does}.`);
    }
    return facts;
  }
}

// title returns a limit in words. The configuration's window is preferred to the backend's, which
// knows no calendars.
export function title(limit, configured) {
  if (limit.algorithm === "in_flight") return `${most(limit)} in flight`;
  return `${most(limit)} in ${duration(configured?.window_ms ?? limit.width_ms)} (${limit.algorithm.replaceAll("_", " ")})`;
}

const most = ({ limit, burst }) => (limit === undefined ? "a limit" : count(burst || limit));

// room says when there is room for a further hit.
export function room(limit) {
  if (limit.left > 0) return "now";
  if (limit.algorithm === "in_flight") return "when a request ends";
  if (limit.left === undefined) return "–";
  return limit.next_ms === undefined ? "never, by this limit" : `in ${time(limit.next_ms)}`;
}

// verdict says why a key is refused, or that it is not. It has no times, because each change is
// read out.
function verdict(rule, key, limits, block) {
  const of = key ? `${rule.name}, key ${key}` : rule.name;
  const full = limits.filter((l) => l.left === 0);
  if (!block && full.length === 0) return `${of}: all limits have room, so a request passes.`;
  const does = {
    mark: "a request passes with a mark", delay: "a request waits for room",
  }[rule.full] ?? "a request is refused";
  const reason = block
    ? "the key is blocked, whatever room it has"
    : `${new Intl.ListFormat("en").format(full.map((l) => `the limit of ${l.title}`))} ${full.length === 1 ? "is" : "are"} used up`;
  const because = block && full.length > 0 ? `${reason}, and ${full.length === 1 ? "a limit is" : "limits are"} used up` : reason;
  return `${of}: ${because}, so ${does}${rule.shadow ? " when the rule is enforced. It is a shadow rule, and refuses nobody" : ""}.`;
}

// time returns a duration in words, in its two largest units.
export function time(milliseconds) {
  if (milliseconds === undefined) return "–";
  let left = Math.ceil(milliseconds / 1000);
  if (left < 1) return "a moment";
  const parts = [];
  for (const [seconds, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    if (left >= seconds && parts.length < 2) parts.push(`${Math.floor(left / seconds)} ${unit}`);
    else if (parts.length > 0) break;
    left %= seconds;
  }
  return parts.join(" ");
}
