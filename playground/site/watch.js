import { Changes } from "./changes.js";
import { Drawer } from "./drawer.js";
import { Figures, Flow, banded } from "./flow.js";
import { Curve, Events, Rule, Series, byID, card, count, range, ruleName, say, total } from "./parts.js";
import { Rules } from "./rules.js";
import { Stream, refusal } from "./stream.js";
import { Keys, dead, share, stands } from "./view.js";
import { Whole } from "./whole.js";

// With more rules than these, only the rule that is chosen is drawn.
const few = 4;

// The time between two questions for the rules, in milliseconds.
const often = 15_000;

// Watch is the live view of weir serve: the reports of its proxies.
export class Watch {
  // of says whether the backend asks for a token.
  constructor({ token }) {
    byID("ask").hidden = false;
    byID("ask-token").closest(".field").hidden = !token;
    byID("ask-hint").hidden = !token;
    byID("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.pick();
    });
    stands({ level: "idle", title: "Live", text: token ? "Which limits are near, who is refused, and by which rule: a token shows it." : "Which limits are near, who is refused, and by which rule." });
    if (!token) this.pick();
  }

  // pick shows the namespaces that the token may see, and then the chosen one.
  async pick() {
    this.token = byID("ask-token").value;
    const field = byID("ask-namespace");
    try {
      const response = await fetch("v1/namespaces", { headers: this.headers(), cache: "no-store" });
      if (response.status === 401) {
        this.notice(`Refused: ${await refusal(response)}`);
        return;
      }
      const names = response.ok ? (await response.json()).namespaces.map((n) => n.namespace ?? n) : [];
      if (names.length > 0) {
        const select = document.createElement("select");
        select.id = field.id;
        select.append(...names.map((name) => new Option(name, name)));
        if (names.includes(field.value)) select.value = field.value;
        select.onchange = () => this.look();
        field.replaceWith(select);
      }
    } catch {
      // The stream tells that nobody answers.
    }
    this.look();
  }

  // look begins to watch the chosen namespace.
  look() {
    this.namespace = byID("ask-namespace").value;
    const headers = () => this.headers();
    for (const id of ["curves", "nodes", "rules"]) byID(id).replaceChildren();
    this.table = new Rules(byID("rules"), (name) => this.choose(name));
    this.events = new Events();
    this.last = 0; // the number of the last moment
    this.rules = new Map();
    this.proxies = new Series();
    this.flowed = new Series(); // of the rules by name
    this.told = undefined;
    this.chosen = undefined;
    this.shadows = new Set();
    this.asked = 0;
    byID("look-up").hidden = true;
    this.drawer?.close(); // its answers under way are of another namespace
    this.drawer = new Drawer({
      namespace: this.namespace, headers, mayChange: false, changed: () => this.changed.again(true),
      url: ({ rule, hash, values }) => `v1/counter?${new URLSearchParams([["namespace", this.namespace], ...(hash ? [["id", hash]] : []), ["rule", rule], ...(values ?? []).map((v) => ["key", v])])}`,
    });
    this.keys = new Keys((rule, key) => this.drawer.choose(rule, key), (text) => this.drawer.lookUp(text), "weir counter get looks up any key.", this.table, (name) => this.flowed.points.map(([time, rules]) => [time, rules.get(name)?.refused ?? 0]));
    this.changed = new Changes(this.namespace, headers);
    this.whole = new Whole({ namespace: this.namespace, headers, changed: () => this.changed.again(true) });
    this.flow = new Flow((name) => this.choose(name));
    say(byID("empty"), "No requests yet.");
    this.figures = new Figures(["Requests a second, last 10\u00a0s", "Refused, last 10\u00a0s", "Proxies", "Overrides"]);
    this.show(false);
    this.show(true);
  }

  notice(text) {
    say(byID("live-notice"), text || "");
    byID("live-notice").hidden = !text;
  }

  // headers returns the header with the token.
  headers() {
    return this.token ? { authorization: `Bearer ${this.token}` } : {};
  }

  show(on) {
    if (!on) {
      this.stream?.stop();
      this.stream = undefined;
    } else if (this.namespace && !this.stream) {
      this.stream = new Stream(`v1/watch?namespace=${encodeURIComponent(this.namespace)}`, {
        headers: () => ({ "last-event-id": `${this.last}`, ...this.headers() }),
        told: (name, data) => {
          this.silent = false;
          this[name](data);
        },
        trouble: (reason, final, again) => {
          this.notice(final && `Refused: ${reason}`);
          if (!reason || !again) return;
          this.silent = true;
          dead("weir serve", this.told?.at, reason);
          this.flow.draw();
        },
      });
    }
  }

  // moment comes every two seconds; earlier moments come first.
  moment({ n, at, rules }) {
    if (n <= this.last) this.forget(); // another server, or the same after a restart
    this.last = n;
    for (const rule of rules) {
      this.known(rule.rule).add(at, rule);
      this.table.set(rule.rule, at, {
        used: rule.use, text: rule.use === undefined ? "no key reported" : `${Math.round(100 * rule.use)} % used, by the nearest key`, passed: rule.passed, refused: rule.refused,
      });
    }
    this.flowed.add(at, new Map(rules.map((rule) => [rule.rule, rule])));
  }

  forget() {
    this.flowed = new Series();
    this.rules.forEach((rule) => rule.forget());
    this.table.forget();
  }

  // choose has everything show a rule alone, or all for undefined.
  choose(name) {
    this.chosen = name;
    this.table.choose(name);
    this.drawn();
    if (this.told) this.watched(this.told);
  }

  // drawn says which rules are drawn: the chosen one, or all if there are few.
  drawn() {
    for (const [name, rule] of this.rules) rule.chosen = this.chosen === undefined ? this.rules.size <= few : name === this.chosen;
  }

  // watched comes after the moments.
  watched(told) {
    this.told = told;
    const { at, ready, partly, top, overrides, may_change: may } = told;
    this.events.outage(at, !ready ? "the store fails" : partly ? "a part of the store fails" : "");
    this.table.show();
    if (!this.silent) this.stand(told);
    if (!top) return;
    this.proxies.add(at, top.nodes);
    const { points } = this.flowed;
    const sum = (rules) => [...rules.values()].reduce(([p, r], { passed, refused }) => [p + passed, r + refused], [0, 0]);
    const all = points.map(([time, rules]) => [time, ...sum(rules)]);
    this.shadows = new Set(top.rules.filter(({ shadow }) => shadow).map(({ rule }) => rule));
    const bands = this.chosen === undefined ? banded([...this.rules.keys()].filter((name) => !this.shadows.has(name)).map((name) => [
      name, total(points.filter(([time]) => time >= at - range.ms), ([, rules]) => rules.get(name)?.refused ?? 0),
    ])) : [];
    this.flow.show(this.chosen === undefined
      ? all.map((point, i) => [...point, ...bands.map((name) => points[i][1].get(name)?.refused ?? 0)])
      : points.map(([time, rules]) => [time, rules.get(this.chosen)?.passed ?? 0, rules.get(this.chosen)?.refused ?? 0]), bands, this.chosen, this.events, at);
    const [, passed = 0, refused = 0] = all.at(-1) ?? [];
    this.figures.show(0, count(passed + refused), all.map(([time, p, r]) => [time, p + r]));
    const part = ([time, p, r]) => [time, p + r > 0 ? r / (p + r) : 0];
    this.figures.show(1, share(passed + refused > 0 ? part(all.at(-1))[1] : undefined), all.map(part), "refused");
    this.figures.show(2, count(top.nodes), this.proxies.points);
    this.figures.show(3, count(overrides ?? 0), []);
    for (const [name, known] of this.rules) known.show(top.rules.find((rule) => rule.rule === name), at, this.events);
    this.keys.show(top.rules, "No proxy has reported any in the last half minute.", this.chosen);
    this.drawer.mayChange = may === true;
    this.drawer.again();
    this.changed.again();
    this.know(may === true);
  }

  // know asks for the rules that proxies have told, if that was not done just now: their keys can be looked up, and who
  // may can change them.
  async know(may) {
    if (!may) byID("move").hidden = true;
    if (Date.now() - this.asked < often) return;
    this.asked = Date.now();
    const { drawer, keys, whole } = this;
    let known;
    try {
      const response = await fetch(`v1/namespaces?namespace=${encodeURIComponent(this.namespace)}`, { headers: this.headers(), cache: "no-store" });
      if (response.status >= 500 || drawer !== this.drawer) return; // too many are reading, or another namespace is shown
      known = response.ok ? (await response.json()).namespaces[0]?.known : undefined;
    } catch {
      return; // the page says elsewhere that nobody answers
    }
    if (may) whole.show(known);
    drawer.know((known ?? []).filter(({ key, local }) => key && !local).map(({ rule, key, mode }) => ({
      name: rule, key: key.map((form, i) => (form.client_ip ? "address" : `value ${i + 1}`)), limits: [], shadow: mode === "shadow",
    })));
    byID("look-up").hidden = drawer.rules.length === 0;
    if (drawer.rules.length > 0) keys.absent = "Enter looks it up.";
  }

  // stand says whether the store takes hits.
  stand({ ready, partly, since, top }) {
    byID("live-next").hidden = !ready || partly || top?.nodes !== 0;
    say(byID("live-next"), `"namespace": ${JSON.stringify(this.namespace)},\n"backend": {"cluster": "weir"}`);
    const proxies = top && (top.nodes === 1 ? "1 proxy reports" : `${top.nodes} proxies report`);
    if (!ready) stands({ level: "degraded", title: "Store away", text: "Each proxy counts alone, and pushes what it has counted when the store is back." }, since);
    else if (partly) stands({ level: "degraded", title: "A part of the store away", text: "Each proxy counts the keys of that part alone, and pushes what it has counted when the part is back. All other keys are counted together." }, since);
    else if (top?.nodes === 0) stands({ level: "idle", title: "No proxy reports yet", text: `This is no error. Put these lines into the configuration of a proxy whose Envoy has this server as its cluster weir, and send it a request. It reports within seconds.` });
    else stands({ level: "shared", title: "Shared", text: `${proxies} of ${this.namespace}. The store takes hits.` });
  }

  // known returns the view of a rule.
  known(rule) {
    if (!this.rules.has(rule)) {
      this.rules.set(rule, new Watched(rule));
      this.drawn();
    }
    byID("curves-legend").hidden = false;
    return this.rules.get(rule);
  }
}

// Watched is the view of a rule that proxies report.
class Watched {
  constructor(rule) {
    this.chosen = true;
    this.element = card("node");
    this.element.querySelector("dl").remove();
    byID("nodes").append(this.element);
    this.view = new Rule(this.element.querySelector(".rules"), "Requests");
    this.curve = new Curve(byID("curves"), `${rule}: share of the limit`,
      "For the key that is nearest to a limit, as a proxy saw it last. Proxies report at most 100\u00a0%, which includes hits that other proxies have leased.");
    this.forget();
  }

  forget() {
    Object.assign(this, { passed: new Series(), refused: new Series() });
    this.curve.used = new Series();
  }

  add(at, { passed, refused, use }) {
    this.passed.add(at, passed);
    this.refused.add(at, refused);
    this.use = use;
    if (use !== undefined) this.curve.used.add(at, 100 * use);
  }

  // show shows the proxies' reports, if there are any.
  show(rule, at, events) {
    this.element.hidden = !rule || !this.chosen;
    this.curve.element.hidden = !this.chosen;
    if (!this.chosen) return;
    if (rule) {
      say(this.element.querySelector("h2"), ruleName(rule.rule, rule.shadow));
      say(this.element.querySelector(".status"), rule.nodes === 1 ? "1 proxy" : `${rule.nodes} proxies`);
      this.view.show(this.passed.points, this.refused.points);
    }
    const use = this.use === undefined ? "no proxy has reported a key" : `${Math.round(100 * this.use)} %`;
    this.curve.show(100, rule ? use : "no proxy reports", at, events);
  }
}
