import { change, later } from "./changes.js";
import { byID, copy, count, duration, gauge, limitNumber, putFields, say } from "./parts.js";
import { refusal } from "./stream.js";

// The time between two requests, in milliseconds.
const often = 1000;

// The days that a window of the calendar has for an override. Its width in the store is no time.
const days = { day: 1, week: 7, month: 31 };

// Drawer tells how a key stands, and changes that.
export class Drawer {
  // of has the namespace, the headers of requests, and url, which returns the address that tells of a
  // key by its rule, hash and values. rules are those that a key can be typed for, if the page knows
  // their keys. command has the flags that the command line needs, and changed is called after each
  // change.
  constructor(of) {
    Object.assign(this, { rules: [], command: "", mayChange: true, ...of });
    this.section = byID("why");
    this.form = byID("why-form");
    byID("why-rule").onchange = () => this.fields();
    this.form.onsubmit = (event) => {
      event.preventDefault();
      const values = [...this.form.querySelectorAll("input")].map((input) => input.value);
      this.ask({ rule: byID("why-rule").value, values });
    };
    byID("why-close").onclick = () => this.close();
    this.section.onkeydown = (event) => {
      if (event.key === "Escape") this.close();
    };
    byID("act").oninput = () => this.commands();
    byID("act").onsubmit = (event) => {
      event.preventDefault();
      this.set();
    };
    byID("act-unset").onclick = () => this.act("DELETE", "overrides", { rule: this.asked.rule, key: this.values }, undefined, "The override is removed.");
    byID("act-reset").onclick = () => this.act("POST", "counter", {}, { id: this.told.hash, rule: this.asked.rule, key: this.values, reset: true }, "The counter is empty.");
    for (const button of document.querySelectorAll("[data-copy]")) {
      button.onclick = () => copy(byID(button.dataset.copy).textContent, byID(button.dataset.told ?? "act-told"));
    }
    this.close();
    this.know(this.rules);
  }

  // know has keys of these rules typed. The fields stay as they are while the rules do.
  know(rules) {
    const shape = JSON.stringify(rules);
    if (shape === this.known) return;
    Object.assign(this, { rules, known: shape });
    const chosen = byID("why-rule").value;
    byID("why-rule").replaceChildren(...rules.map(({ name }) => new Option(name, name)));
    if (rules.some(({ name }) => name === chosen)) byID("why-rule").value = chosen;
    this.fields();
  }

  close() {
    if (this.section.contains(document.activeElement)) this.from?.focus();
    this.asked = undefined;
    this.section.hidden = true;
  }

  // fields shows a field for each part of the key of the chosen rule.
  fields() {
    const parts = this.rules.find(({ name }) => name === byID("why-rule").value)?.key ?? [];
    putFields(byID("why-key"), parts, parts.map((part) => (part.startsWith("literal ") ? part.slice("literal ".length) : "")));
  }

  // lookUp looks up a key that no table has, by a value of it. If there are others, they have to be
  // typed first.
  lookUp(value) {
    const fields = [...byID("why-key").querySelectorAll("input")];
    const field = fields.find((input) => !input.value) ?? fields.at(-1);
    if (byID("look-up").hidden || !field) return;
    byID("look-up").open = true;
    field.value = value;
    const empty = fields.find((input) => !input.value);
    if (empty) empty.focus();
    else this.form.requestSubmit();
  }

  // choose asks about a key of a table.
  choose(rule, { hash, values, use }) {
    const whole = values && !values.some(({ cut }) => cut) ? values.map(({ text }) => text) : undefined;
    this.ask({ rule, hash, values: whole, use, name: values?.map(({ text, cut }) => (cut ? `${text}…` : text)).join(" ") });
  }

  ask(asked) {
    this.from = document.activeElement;
    this.asked = asked;
    this.told = undefined;
    this.shape = "";
    this.section.hidden = false;
    say(byID("why-title"), asked.rule);
    for (const id of ["why-told", "why-next", "act-told"]) say(byID(id), "");
    byID("why-limits").replaceChildren();
    byID("why-facts").replaceChildren();
    byID("act").hidden = true;
    this.section.scrollIntoView({ block: "nearest" });
    byID("why-title").focus({ preventScroll: true });
    this.again();
  }

  // again updates the answer, unless that was done just now.
  async again(facts = this.more) {
    this.more = facts;
    const { asked } = this;
    if (!asked || asked.refused || asked.running || Date.now() - (asked.at ?? 0) < often) return;
    asked.running = true;
    asked.at = Date.now();
    let told;
    let trouble;
    try {
      const response = await fetch(this.url(asked), { headers: this.headers(), cache: "no-store" });
      if (response.ok) told = await response.json();
      else {
        trouble = await refusal(response);
        asked.refused = response.status < 500;
      }
    } catch (error) {
      trouble = `no answer: ${error.message}`;
    }
    asked.running = false;
    if (asked !== this.asked) return; // another key was chosen meanwhile
    if (told) this.show(told, asked);
    else {
      say(byID("why-told"), trouble);
      say(byID("why-next"), "");
      byID("why-limits").replaceChildren();
      byID("why-facts").replaceChildren();
      byID("act").hidden = true;
    }
  }

  show(told, asked) {
    const rule = this.rules.find(({ name }) => name === asked.rule);
    this.told = { hash: asked.hash ?? told.id, ...told };
    this.values = asked.values ?? told.key ?? undefined;
    const key = this.values?.join(" ") || asked.name || (rule && !rule.key ? "" : this.told.hash);
    const all = told.limits.filter((l) => l.algorithm !== "block").map((l, i) => ({ ...l, span: rule?.limits[i]?.window_ms ?? (days[l.period] * 86_400_000 || l.width_ms), rule: rule?.limits[i] }));
    const block = told.limits.find((l) => l.algorithm === "block" && l.used > 0);
    say(byID("why-title"), `${key || "All requests"}, by ${asked.rule}`);
    say(byID("why-told"), verdict(asked, { shadow: rule?.shadow, full: rule?.full, mode: told.mode }, key, all, block));
    say(byID("why-next"), all.length === 0 ? "" : next(all, block));
    this.limits(all);
    const facts = this.about(told, rule, all, block);
    const list = byID("why-facts");
    while (list.children.length > facts.length) list.lastChild.remove();
    facts.forEach((fact, i) => say(list.children[i] ?? list.appendChild(document.createElement("li")), fact));
    this.actions(all);
  }

  // limits shows a bar and a line for each limit.
  limits(all) {
    const list = byID("why-limits");
    while (list.children.length > all.length) list.lastChild.remove();
    all.forEach((l, i) => {
      let item = list.children[i];
      if (!item) {
        item = list.appendChild(document.createElement("li"));
        item.innerHTML = "<b></b><p></p>";
        item.gauge = gauge(item);
      }
      const title = `${within(l)} (${l.algorithm.replaceAll("_", " ")})`;
      say(item.firstChild, title);
      item.gauge(l.limit === undefined ? undefined : l.used / Math.max(1, l.burst || l.limit), `${title}: ${count(l.used)} used`);
      const used = `${count(l.used - (l.leased ?? 0))} used${l.leased ? `, ${count(l.leased)} leased` : ""}${l.pending ? `, up to ${count(l.pending)} pending` : ""}`;
      const back = l.reset_ms === undefined || l.algorithm === "in_flight" ? "" : `, all back in ${time(l.reset_ms)}`;
      say(item.querySelector("p"), l.left === undefined ? `${used}${back}` : `${used}, ${count(l.left)} left: ${room(l)}${back}`);
    });
  }

  // about returns the facts besides the limits.
  about(told, rule, all, block) {
    const facts = [];
    if (told.id) facts.push("Found by its name. Where proxies have a key_secret, weir counter get finds the key with it, and this page does not.");
    if (told.mode) facts.push({ off: "The rule is off at run time: it refuses nothing and counts nothing.", shadow: "The rule is a shadow rule at run time: it refuses nothing." }[told.mode] ?? "The rule is enforced at run time.");
    const by = told.override;
    if (by?.limits.length > 0) {
      const limits = by.limits.map((l) => `${count(l.limit)} in ${duration(l.width_ms)}`).join(", ");
      const until = by.until ? `until ${new Date(by.until).toLocaleString()}` : "until somebody unsets it";
      const of = by.mode ? "of the whole rule" : by.pattern ? `of all keys with the ${by.pattern} ${by.key[by.part ?? 0]}` : "of this key";
      facts.push(`An override ${of} decides: ${limits}, ${until}.`);
    } else if (told.listed) facts.push("The configuration has limits for this key, under overrides.keys. No override was set at run time.");
    else if (this.values) facts.push("No override is in force: the limits are the rule’s.");
    else facts.push("An override is known by the key’s whole name, which the rule does not reveal.");
    if (told.varies) facts.push("Requests of this key can have other limits, by a value in the request. The numbers here are for the limits above.");
    if (block) facts.push(`A block is in force, and ends in ${time(block.reset_ms)}${block.reset_ms === undefined ? "" : " at the latest, unless it is prolonged"}.`);
    if (rule?.costly) facts.push("A request of this rule can take more than one hit. It is refused when fewer are left.");
    for (const { node, places, oldest_ms: oldest } of told.holders ?? []) facts.push(`Proxy ${node} holds ${count(places)}, the oldest for ${time(oldest)}.`);
    if (all.some((l) => l.leased)) facts.push("Leased hits are counted ahead: some seconds ago proxies had taken them for requests to come. A proxy lets requests pass by them, even if nothing is left here.");
    if (all.some((l) => l.pending)) facts.push("Pending hits have passed at proxies, which count them here at their next push, within their sync_rate.");
    if (all.some((l) => l.left === undefined)) facts.push("No proxy has told the rule’s limits. weir counter get, with the proxies’ --config, tells how much is left.");
    return [...facts, ...(this.more ?? [])];
  }

  // actions shows what can be done about the key.
  actions(all) {
    const known = Boolean(this.values);
    byID("act").hidden = false;
    byID("act-buttons").hidden = !known || !this.mayChange;
    byID("act-reason").closest(".field").hidden = !known;
    byID("act-unset").hidden = !this.told.override || Boolean(this.told.override.mode || this.told.override.pattern);
    byID("act-set").hidden = !known || !this.mayChange || all.length === 0;
    // The fields stay as they are while somebody types.
    const shape = JSON.stringify(all.map((l) => [l.span, l.algorithm]));
    this.of = all;
    if (shape !== this.shape) {
      this.shape = shape;
      putFields(byID("act-limits"), all.map((l) => (l.algorithm === "in_flight" ? "Requests in flight" : `Hits in ${spanOf(l)}`)), all.map((l) => l.limit ?? l.used), limitNumber);
    }
    byID("act-limits").hidden = !known;
    byID("act-until").closest(".field").hidden = !known || all.length === 0;
    this.commands();
  }

  // asks returns the override that the fields describe. A bucket keeps its burst, unless that is its limit, as it is
  // without one.
  asks() {
    return [...byID("act-limits").querySelectorAll("input")].map((input, i) => {
      const { limit, burst, span } = this.of[i];
      return { limit: Number(input.value), width_ms: span, ...(burst && burst !== limit && { burst }) };
    });
  }

  // commands shows the commands that do the same.
  commands() {
    if (!this.asked) return;
    const reason = byID("act-reason").value.trim();
    const why = reason ? ` --reason ${quoted(reason)}` : "";
    const values = this.values?.map((v) => (/^-|^\d+\//.test(v) ? `--key ${quoted(v)}` : quoted(v))) ?? ["VALUE"];
    const key = [...operand(this.namespace), ...operand(this.asked.rule), ...values].join(" ");
    const limits = this.of?.length && this.values
      ? this.asks().map((l, i) => (this.of[i].algorithm === "in_flight" ? `${l.limit}/in_flight` : [l.limit, span(l.width_ms), ...(l.burst ? [l.burst] : [])].join("/"))).join(" ")
      : "LIMIT/WINDOW";
    const until = byID("act-until").value;
    say(byID("act-command-set"), `weir override set ${key} ${limits}${until ? ` --until ${until}` : ""}${why}${this.command}`);
    say(byID("act-command-reset"), `weir counter reset ${key}${why}${this.command}`);
  }

  async set() {
    const until = later(byID("act-until").value);
    const limits = this.asks();
    const told = limits.map((l, i) => `${count(l.limit)} in ${spanOf(this.of[i])}`).join(", ");
    await this.act("PUT", "overrides", this.force ? { force: "1" } : {}, { overrides: [{ rule: this.asked.rule, key: this.values, limits, ...(until && { until }) }] }, `The limit is ${told}.`);
  }

  // act asks for a change, and tells what became of it.
  async act(method, path, query, body, done) {
    const reason = byID("act-reason");
    if (!reason.reportValidity()) return;
    const { asked } = this;
    const title = byID("why-title").textContent;
    say(byID("act-told"), "");
    const told = (await change(this, reason.value.trim(), method, path, query, body)) ?? done;
    say(byID("act-told"), asked === this.asked ? told : `${title}: ${told}`); // another key may be shown by now
    if (this.asked) this.asked.at = 0;
    this.again();
    this.changed();
  }
}

// within tells a limit: of a bucket first the burst, of which its used hits are.
function within(l) {
  const most = l.limit === undefined ? "a limit" : count(l.limit);
  if (l.algorithm === "in_flight") return `${most} in flight`;
  return `${l.burst && l.burst !== l.limit ? `${count(l.burst)} at once, ` : ""}${most} in ${spanOf(l)}`;
}
const spanOf = (l) => (l.period ? `1 ${l.period}` : duration(l.span));

// room says when there is room for a further hit.
function room(limit) {
  if (limit.left > 0) return "one passes now";
  if (limit.algorithm === "in_flight") return "one passes when a request ends";
  return limit.next_ms === undefined ? "none passes, by this limit" : `one passes in ${time(limit.next_ms)}`;
}

// next says when a request passes.
function next(all, block) {
  if (block) return block.reset_ms === undefined ? "" : `The block ends in ${time(block.reset_ms)}.`;
  const full = all.filter((l) => l.left === 0);
  if (full.length === 0) return "";
  const last = full.reduce((a, b) => ((b.next_ms ?? Infinity) > (a.next_ms ?? Infinity) ? b : a));
  const text = room(last);
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

// verdict says why a key is refused, or that it is not. It has no times, because each change is
// read out.
function verdict(asked, rule, key, all, block) {
  const who = key || "A request";
  const by = asked.rule;
  const is = rule.mode === "shadow" || (rule.shadow && rule.mode !== "enforce") ? "would be" : "is";
  if (rule.mode === "off") return `${who} passes ${by}, which is off.`;
  if (block) return `${who} ${is} blocked by ${by}, whatever room it has.`;
  const full = all.filter((l) => l.left === 0);
  if (full.length > 0) {
    const limits = new Intl.ListFormat("en").format(full.map((l) => `${count(l.used)} of ${within(l)}`));
    const does = { mark: "passes with a mark", delay: "waits for room" }[rule.full] ?? `${is} refused`;
    return `${who} ${does} by ${by}: ${limits}.`;
  }
  if (all.some((l) => l.left === undefined)) {
    const use = asked.use === undefined ? "" : ` ${Math.round(100 * asked.use)} % of its nearest limit was used when a proxy saw it last.`;
    return `${who} has used ${count(all[0].used)} hits of ${by}.${use}`;
  }
  if (all.length === 0) {
    return asked.use === undefined ? `${who} has used nothing of ${by}.` : `${who} of ${by}: ${Math.round(100 * asked.use)} % of its nearest limit was used when a proxy saw it last.`;
  }
  const nearest = all.reduce((a, b) => (b.left < a.left ? b : a));
  return `${who} passes ${by}: ${count(nearest.used)} of ${within(nearest)}.`;
}

// time returns a duration in words, in its two largest units.
function time(milliseconds) {
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

// span returns a window as configurations have it.
export function span(milliseconds) {
  const [size, unit] = [[86400000, "d"], [3600000, "h"], [60000, "m"], [1000, "s"], [1, "ms"]].find(([ms]) => milliseconds % ms === 0);
  return `${milliseconds / size}${unit}`;
}

// operand returns the words of a command for the name of a namespace or a rule.
export const operand = (name) => (name.startsWith("-") ? ["--", name] : [name]);

// quoted returns a word for a shell. Clients choose keys: what a terminal would obey when the command is pasted is escaped.
export const quoted = (text) => {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (text.includes("\0")) return "VALUE"; // no argument has it
  if (!obeyed.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  return `$'${text.replace(/[\\']/g, "\\$&").replace(new RegExp(obeyed, "gu"), escaped)}'`;
};
const obeyed = /[\p{Cc}\p{Cf}]/u;
const escaped = (c) => [...new TextEncoder().encode(c)].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
