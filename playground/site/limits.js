import { byID, count, duration, limitNumber, putFields, say } from "./parts.js";

// Limits sets other limits for the page's users in any rule of weir run, and removes them again.
export class Limits {
  // post sends a change, and returns whether it was accepted.
  constructor(post) {
    this.post = post;
    byID("limit-rule").addEventListener("change", () => this.fields());
    byID("set-limit").addEventListener("click", () => this.set());
    byID("unset-limit").addEventListener("click", () => this.unset());
    byID("do-limit").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.matches("input")) this.set();
    });
    // A number that a person types stays until it is set.
    byID("new-limits").addEventListener("input", (event) => { event.target.dataset.typed = ""; });
  }

  // setup gets the setup of weir run.
  setup({ rules }, watched) {
    this.rules = rules.filter((rule) => rule.shared);
    byID("limit-rule").replaceChildren(...this.rules.map(({ name }) => new Option(name, name)));
    if (this.rules.some(({ name }) => name === watched)) byID("limit-rule").value = watched;
    this.fields();
  }

  get rule() {
    return this.rules.find(({ name }) => name === byID("limit-rule").value);
  }

  get inputs() {
    return [...byID("new-limits").querySelectorAll("input")];
  }

  // fields shows a number for each limit of the chosen rule.
  fields() {
    const { rule } = this;
    const names = (rule?.limits ?? []).map((limit) => (limit.algorithm === "in_flight" ? "Requests in flight" : `Hits in ${duration(limit.window_ms)}`));
    putFields(byID("new-limits"), names, [], { ...limitNumber, max: 1000000, inputMode: "numeric" });
    say(byID("limit-hint"), rule?.key ? "For the users of this page. A click on a key sets its own." : "");
    say(byID("limit-told"), "");
    this.show();
  }

  // show shows the limits in force for the page's users. set has those that the page has set, by
  // rule.
  show(set = this.inForce) {
    this.inForce = set;
    byID("do-limit").hidden = this.rules.length === 0;
    this.inputs.forEach((input, i) => {
      if ("typed" in input.dataset || input === document.activeElement) return;
      input.value = set?.[this.rule.name]?.[i] ?? this.rule.limits[i].limit;
    });
  }

  async set() {
    const { rule, inputs } = this;
    if (!inputs.every((input) => input.reportValidity())) return;
    const limits = inputs.map((input, i) => (Number(input.value) === rule.limits[i].limit ? null : Number(input.value)));
    // The configuration's own numbers remove the limits that were set.
    if (limits.every((limit) => limit === null)) {
      this.unset();
      return;
    }
    const told = inputs.map((input, i) => `${count(input.value)} ${rule.limits[i].algorithm === "in_flight" ? "in flight" : `in ${duration(rule.limits[i].window_ms)}`}`);
    await this.change({ rule: rule.name, limits }, `${rule.name}: ${told.join(", ")}.`);
  }

  async unset() {
    const { rule } = this;
    await this.change({ rule: rule.name, limits: null }, `${rule.name}: as configured.`);
  }

  // change tells a change once it is accepted. Until then nothing is told of the change before.
  async change(asked, text) {
    say(byID("limit-told"), "");
    if (!(await this.post(asked))) return;
    for (const input of this.inputs) delete input.dataset.typed;
    say(byID("limit-told"), text);
  }
}
