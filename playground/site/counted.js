import { Table, byID, count, duration, keyName, ruleName, say } from "./parts.js";
import { room, time, title } from "./why.js";

// Counted explains why a key of a rule is refused, from the counts that weir serve has for a chosen
// key. A backend does not know the rule's limits, so only the used hits are known.
export class Counted {
  constructor(namespace, headers) {
    this.namespace = namespace;
    this.headers = headers;
    this.section = byID("why");
    this.section.querySelector("form").hidden = true;
    say(this.section.querySelector(".hint"), "Choose a key in the tables.");
    byID("why-limits").replaceChildren();
    byID("why-limits").hidden = true;
    byID("why-facts").replaceChildren();
    say(byID("why-told"), "");
    this.table = new Table(byID("why-limits"), "", ["Window", "Used", "Left", "Room for more", "All back"], "How the key stands");
    this.section.hidden = false;
  }

  // choose asks about a key of a table.
  choose(rule, key) {
    this.asked = { rule, key };
    say(byID("why-told"), "");
    byID("why-limits").hidden = true;
    byID("why-facts").replaceChildren();
    this.section.scrollIntoView({ block: "nearest" });
    byID("why-title").focus({ preventScroll: true });
    this.again();
  }

  // again updates the answer.
  async again() {
    const { asked } = this;
    if (!asked || asked.running || asked.refused) return;
    asked.running = true;
    const query = new URLSearchParams({ namespace: this.namespace, id: asked.key.hash, rule: asked.rule.rule });
    for (const { text } of whole(asked.key) ?? []) query.append("key", text);
    let told;
    let trouble;
    try {
      const response = await fetch(`v1/counter?${query}`, { headers: this.headers, cache: "no-store", credentials: "omit" });
      if (response.ok) told = await response.json();
      else {
        trouble = `weir serve answers ${response.status}`;
        asked.refused = response.status < 500;
      }
    } catch (error) {
      trouble = `weir serve does not answer: ${error.message}`;
    }
    asked.running = false;
    if (asked !== this.asked) return; // another key was chosen meanwhile
    if (trouble) say(byID("why-told"), trouble);
    else this.show(told, asked);
  }

  show(told, { rule, key }) {
    const limits = told.limits.filter((l) => l.algorithm !== "block");
    const block = told.limits.find((l) => l.algorithm === "block" && l.used > 0);
    say(byID("why-told"), verdict(rule, key, limits, block));
    this.table.show(limits.map((l) => [title(l), count(l.used), l.left === undefined ? "–" : count(l.left), room(l), l.reset_ms === undefined ? "–" : time(l.reset_ms)]), "No hit counts now.");
    byID("why-limits").hidden = false;
    const facts = [];
    if (block) facts.push(`A block is in force, and ends in ${time(block.reset_ms)}.`);
    if (told.override) {
      const others = told.override.limits.map((l) => `${count(l.limit)} in ${duration(l.width_ms)}`).join(", ");
      facts.push(`An override is in force: ${others}, ${told.override.until ? `until ${new Date(told.override.until).toLocaleString()}` : "until somebody unsets it"}.`);
    } else if (!whole(key)) facts.push("An override is known by the key’s whole name, which the rule does not reveal.");
    for (const { node, places, oldest_ms: oldest } of told.holders ?? []) facts.push(`Node ${node} holds ${count(places)}, the oldest for ${time(oldest)}.`);
    if (limits.some((l) => l.left === undefined)) facts.push("A backend does not know the limits of rules. weir counter get, with the proxies’ --config, tells how much is left.");
    byID("why-facts").replaceChildren(...facts.map((fact) => Object.assign(document.createElement("li"), { textContent: fact })));
  }
}

// whole returns a key's values, if the rule reveals all of them.
const whole = ({ values }) => (values && !values.some(({ cut }) => cut) ? values : undefined);

// verdict says why a key is refused, as far as a backend knows.
function verdict(rule, key, limits, block) {
  const of = `${ruleName(rule.rule, rule.shadow)}, key ${keyName(key) || "(empty)"}`;
  if (block) return `${of}: the key is blocked, whatever room it has.`;
  const full = limits.filter((l) => l.left === 0);
  if (full.length > 0) return `${of}: ${new Intl.ListFormat("en").format(full.map((l) => `the limit of ${title(l)}`))} ${full.length === 1 ? "is" : "are"} used up.`;
  return `${of}: ${Math.round(100 * key.use)} % of its nearest limit was used when a node saw it last.`;
}
