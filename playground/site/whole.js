import { change, later } from "./changes.js";
import { quoted, span } from "./drawer.js";
import { byID, count, duration, keyFields, say } from "./parts.js";

// The time between two questions for the rules, in milliseconds, and the name of all rules together.
const often = 15_000;
const all = "*";

// Whole changes whole rules at run time, for those who may.
export class Whole {
  // of has the namespace, the headers of requests, and changed, which is called after each change.
  constructor(of) {
    Object.assign(this, of, { rules: [], at: 0 });
    byID("move").hidden = true;
    byID("move-rule").onchange = () => this.choose();
    byID("move-form").oninput = () => this.command();
    byID("move-form").onsubmit = (event) => {
      event.preventDefault();
      if (this.rule !== all) return this.set();
      say(byID("move-sure-text"), `All rules of ${this.namespace} stop: every request passes, on all proxies.`);
      byID("move-sure").returnValue = "";
      return byID("move-sure").showModal();
    };
    byID("move-sure").onclose = () => {
      if (byID("move-sure").returnValue === "off") this.set();
    };
    byID("move-reset").onclick = () => this.act("DELETE", { rule: this.rule, whole: "" }, undefined, `${this.named} as before.`);
  }

  // again shows the rules that proxies have told, if that was not done just now.
  async again(may) {
    if (!may) byID("move").hidden = true;
    if (!may || Date.now() - this.at < often) return;
    this.at = Date.now();
    let known;
    try {
      const response = await fetch(`v1/namespaces?namespace=${encodeURIComponent(this.namespace)}`, { headers: this.headers(), cache: "no-store", credentials: "omit" });
      known = response.ok ? (await response.json()).namespaces[0]?.known : undefined;
    } catch {
      return; // the page says elsewhere that nobody answers
    }
    byID("move").hidden = !known;
    if (!known || JSON.stringify(known) === JSON.stringify(this.rules)) return;
    const chosen = byID("move-rule").value;
    this.rules = known;
    byID("move-rule").replaceChildren(...known.map(({ rule }) => new Option(rule, rule)), new Option("all rules", all));
    if (known.some(({ rule }) => rule === chosen)) byID("move-rule").value = chosen;
    this.choose();
  }

  get rule() {
    return byID("move-rule").value;
  }

  get named() {
    return this.rule === all ? "All rules are" : `${this.rule} is`;
  }

  // choose shows fields for the chosen rule. All rules together can only be off.
  choose() {
    this.limits = this.rules.find(({ rule }) => rule === this.rule)?.limits ?? [];
    keyFields(byID("move-limits"), this.limits.map((l) => (l.algorithm === "in_flight" ? "Requests in flight" : `Hits in ${l.period ?? duration(l.width_ms)}`)), this.limits.map((l) => l.limit));
    for (const input of byID("move-limits").querySelectorAll("input")) Object.assign(input, { type: "number", min: 0, max: 1e12, step: 1, required: true });
    if (this.rule === all) byID("move-mode").value = "off";
    for (const option of byID("move-mode").options) option.disabled = this.rule === all && option.value !== "off";
    this.command();
  }

  // asks returns what the fields describe. Limits that are as proxies have told them are left out.
  asks() {
    const limits = [...byID("move-limits").querySelectorAll("input")].map((input, i) => ({ limit: Number(input.value), width_ms: this.limits[i].width_ms }));
    const moved = limits.some(({ limit }, i) => limit !== this.limits[i].limit);
    return { rule: this.rule, mode: byID("move-mode").value, ...(moved && { limits }) };
  }

  command() {
    const { rule, mode, limits = [] } = this.asks();
    byID("move-limits").hidden = mode === "off";
    const until = byID("move-until").value;
    const reason = byID("move-reason").value.trim();
    const of = rule === all ? ["--all", this.namespace] : [this.namespace, rule];
    const why = reason ? ["--reason", quoted(reason)] : [];
    const words = ["weir rule", mode === "off" ? "off" : "set", ...of];
    if (mode !== "off" && mode !== "configured") words.push("--mode", mode);
    if (mode !== "off") limits.forEach((l, i) => words.push("--limit", `${l.limit}/${this.limits[i].algorithm === "in_flight" ? "in_flight" : span(l.width_ms)}`));
    if (until) words.push("--until", until);
    say(byID("move-command"), [...words, ...why].join(" "));
    say(byID("move-command-reset"), ["weir rule reset", ...of, ...why].join(" "));
  }

  set() {
    const until = later(byID("move-until").value);
    const o = this.asks();
    if (o.mode === "off") delete o.limits;
    if (o.mode === "configured" && !o.limits) return say(byID("move-told"), "Choose a mode or another limit.");
    const limits = (o.limits ?? []).map((l) => `${count(l.limit)} in ${duration(l.width_ms)}`).join(", ");
    return this.act("PUT", {}, { overrides: [{ ...o, ...(until && { until }) }] }, `${this.named} set: ${[o.mode, limits].filter(Boolean).join(", ")}.`);
  }

  async act(method, query, body, done) {
    if (!byID("move-reason").reportValidity()) return;
    say(byID("move-told"), "");
    say(byID("move-told"), (await change(this, byID("move-reason").value.trim(), method, "overrides", query, body)) ?? done);
    this.changed();
  }
}
