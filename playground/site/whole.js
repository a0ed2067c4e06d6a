import { change, later } from "./changes.js";
import { operand, quoted, span } from "./drawer.js";
import { byID, count, duration, limitNumber, putFields, say } from "./parts.js";

// The name of all rules together.
const all = "*";

// named begins what is said of a rule.
const named = (rule) => (rule === all ? "All rules are" : `${rule} is`);

// Whole changes whole rules at run time, for those who may.
export class Whole {
  // of has the namespace, the headers of requests, and changed, which is called after each change.
  constructor(of) {
    Object.assign(this, of, { rules: [] });
    byID("move").hidden = true;
    byID("move-rule").replaceChildren();
    byID("move-rule").onchange = () => this.choose();
    byID("move-form").oninput = () => this.command();
    byID("move-form").onsubmit = (event) => {
      event.preventDefault();
      this.asked = this.asks(); // what the dialog asks about, whatever proxies tell meanwhile
      if (this.rule !== all) return this.set(this.asked);
      say(byID("move-sure-text"), `All rules of ${this.namespace} stop: every request passes, on all proxies.`);
      byID("move-sure").returnValue = "";
      return byID("move-sure").showModal();
    };
    byID("move-sure").onclose = () => {
      if (byID("move-sure").returnValue === "off") this.set(this.asked);
    };
    byID("move-reset").onclick = () => this.act("DELETE", { rule: this.rule, whole: "" }, undefined, `${named(this.rule)} as before.`);
  }

  // show shows the rules that proxies have told, if any.
  show(known) {
    byID("move").hidden = !known;
    if (!known || JSON.stringify(known) === JSON.stringify(this.rules)) return;
    const first = byID("move-rule").options.length === 0;
    const chosen = this.rule;
    this.rules = known;
    byID("move-rule").replaceChildren(...known.map(({ rule }) => new Option(rule, rule)), new Option("all rules", all));
    if (!first) byID("move-rule").value = chosen; // none if it is gone, and not another one
    if (this.rule !== chosen && !first) say(byID("move-told"), `No proxy has the rule ${chosen} any more.`);
    this.choose();
  }

  get rule() {
    return byID("move-rule").value;
  }

  get fields() {
    return [...byID("move-limits").querySelectorAll("input")];
  }

  // choose shows fields for the chosen rule. They stay as they are while somebody types, unless the rule has other
  // windows. All rules together can only be off.
  choose() {
    const limits = this.rules.find(({ rule }) => rule === this.rule)?.limits ?? [];
    const shape = JSON.stringify([this.rule, limits.map((l) => [l.algorithm, l.width_ms, l.period])]);
    if (shape !== this.shape) {
      putFields(byID("move-limits"), limits.map((l) => (l.algorithm === "in_flight" ? "Requests in flight" : `Hits in ${l.period ?? duration(l.width_ms)}`)), limits.map((l) => l.limit), limitNumber);
    } else {
      this.fields.forEach((input, i) => {
        if (Number(input.value) === this.limits[i].limit) input.value = limits[i].limit;
      });
    }
    Object.assign(this, { limits, shape });
    if (this.rule === all) byID("move-mode").value = "off";
    for (const option of byID("move-mode").options) option.disabled = this.rule === all && option.value !== "off";
    this.command();
  }

  // asks returns what the fields describe. Limits that are as proxies have told them are left out. A bucket keeps its
  // burst, unless that is its limit, as it is without one.
  asks() {
    const limits = this.fields.map((input, i) => {
      const { limit, burst, width_ms } = this.limits[i];
      return { limit: Number(input.value), width_ms, ...(burst && burst !== limit && { burst }) };
    });
    const moved = limits.some(({ limit }, i) => limit !== this.limits[i].limit);
    return { rule: this.rule, mode: byID("move-mode").value, ...(moved && { limits }) };
  }

  command() {
    const { rule, mode, limits = [] } = this.asks();
    byID("move-limits").hidden = mode === "off";
    for (const input of this.fields) input.disabled = mode === "off"; // else the browser refuses what nobody sees
    const until = byID("move-until").value;
    const reason = byID("move-reason").value.trim();
    const of = rule === all ? ["--all", ...operand(this.namespace)] : [...operand(this.namespace), ...operand(rule || "RULE")];
    const why = reason ? ["--reason", quoted(reason)] : [];
    const words = ["weir rule", mode === "off" ? "off" : "set", ...of];
    if (mode !== "off" && mode !== "configured") words.push("--mode", mode);
    if (mode !== "off") limits.forEach((l, i) => words.push("--limit", [l.limit, this.limits[i].algorithm === "in_flight" ? "in_flight" : span(l.width_ms), ...(l.burst ? [l.burst] : [])].join("/")));
    if (until) words.push("--until", until);
    say(byID("move-command"), [...words, ...why].join(" "));
    say(byID("move-command-reset"), ["weir rule reset", ...of, ...why].join(" "));
  }

  set(o) {
    const until = later(byID("move-until").value);
    if (o.mode === "off") delete o.limits;
    if (o.mode === "configured" && !o.limits) return say(byID("move-told"), "Choose a mode or another limit.");
    const limits = (o.limits ?? []).map((l) => `${count(l.limit)} in ${duration(l.width_ms)}`).join(", ");
    return this.act("PUT", {}, { overrides: [{ ...o, ...(until && { until }) }] }, `${named(o.rule)} set: ${[o.mode, limits].filter(Boolean).join(", ")}.`);
  }

  async act(method, query, body, done) {
    if (!this.rule) return say(byID("move-told"), "Choose a rule.");
    if (!byID("move-reason").reportValidity()) return;
    say(byID("move-told"), "");
    say(byID("move-told"), (await change(this, byID("move-reason").value.trim(), method, "overrides", query, body)) ?? done);
    this.changed();
  }
}
