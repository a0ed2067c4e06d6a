import { Changes } from "./changes.js";
import { Drawer, quoted } from "./drawer.js";
import { Figures, Flow, banded, ratio } from "./flow.js";
import { Limits } from "./limits.js";
import { Curve, Events, Rule, Series, byID, card, count, duration, observer, percent, range, rate, ruleName, say } from "./parts.js";
import { Rules } from "./rules.js";
import { Stream, refusal } from "./stream.js";
import { Keys, dead, share, stands } from "./view.js";
import { words } from "./words.js";

// figures are the figures of a proxy.
const figures = [
  ["callouts", "Callouts"], ["failed_callouts", "Failed callouts"], ["pushed", "Hits pushed"],
  ["waited", "Waited"], ["late", "Waited in vain"], ["alone", "Decided alone"],
];

// With more than these, only the rule that is chosen is drawn, and no proxies.
const fewRules = 4;
const fewNodes = 6;

// Run is the live view of weir run: the work of its nodes, and the controls for it.
export class Run {
  constructor() {
    this.last = 0; // the number of the last moment
    this.changing = 0; // requests under way
    this.posted = Promise.resolve(); // the end of the last of them
    this.notices = {};
    this.faults = { away: false, delay_ms: 0, cut: [] };
    this.controls();
  }

  show(on) {
    if (on && !this.stream) {
      this.asked = this.wanted();
      this.stream = new Stream(`live/events${this.asked}`, {
        headers: () => ({ "last-event-id": `${this.last}` }),
        told: (name, data) => {
          this.silent = false;
          this[name](data);
        },
        trouble: (reason, final, again) => {
          this.notice({ stream: final && `Refused: ${reason}` });
          if (!reason || !again) return;
          this.silent = true;
          dead("weir run", this.now?.at, reason);
          this.flow?.draw();
        },
      });
    } else if (!on && this.stream) {
      this.stream.stop();
      this.stream = undefined;
    }
  }

  // wanted asks for the rules of each node that are drawn, unless moments have all of them.
  wanted() {
    if (!this.fixed || this.fixed.each || byID("nodes").hidden) return "";
    return `?${new URLSearchParams(this.fixed.rules.filter(({ name }) => this.shows(name)).map(({ name }) => ["rule", name]))}`;
  }

  // again asks for other rules.
  again() {
    if (!this.stream || this.wanted() === this.asked) return;
    this.show(false);
    this.show(true);
  }

  // notice shows what does not work: the stream, and the last change. Neither hides the other.
  notice(now) {
    Object.assign(this.notices, now);
    const text = Object.values(this.notices).filter(Boolean).join(" ");
    say(byID("live-notice"), text);
    byID("live-notice").hidden = !text;
  }

  // setup comes first.
  setup(setup) {
    this.changes = 0; // of a server that has started again
    const told = JSON.stringify(setup); // moments change this.fixed
    if (told === this.told) return;
    this.told = told;
    this.fixed = setup;
    this.last = 0;
    byID("curves").replaceChildren();
    byID("nodes").replaceChildren();
    byID("cut").replaceChildren();
    byID("tables").replaceChildren();
    byID("rules").replaceChildren();
    byID("load-node").replaceChildren(byID("load-node").options[0]);
    this.events = new Events();
    this.few = setup.rules.length <= fewRules;
    this.chosen = undefined;
    this.table = new Rules(byID("rules"), (name) => this.choose(name));
    this.keys = new Keys((rule, key) => this.drawer.choose(rule, key), (text) => this.drawer.lookUp(text), "Enter looks it up.", this.table, (name) => this.total(name)?.refused.perSecond() ?? []);
    this.drawer = new Drawer({
      namespace: setup.namespace, headers: () => ({}), rules: setup.rules.filter((rule) => rule.shared), force: true,
      command: setup.backend ? ` --backend http://${setup.backend}` : "",
      url: ({ rule, hash, values }) => `live/why?${new URLSearchParams([["rule", rule], ...(hash ? [["id", hash]] : values.map((v) => ["key", v]))])}`,
      changed: () => this.changed.again(true),
    });
    this.changed = new Changes(setup.namespace, () => ({}));
    this.limits.setup(setup, (setup.rules.find((rule) => !rule.shadow) ?? setup.rules[0]).name);
    this.flow = new Flow((name) => this.choose(name));
    const first = setup.rules.find((rule) => !rule.shadow && rule.key?.every((part) => part.startsWith("header "))) ?? setup.rules[0];
    const headers = (first.key ?? []).map((part) => (part.startsWith("header ") ? `-H ${quoted(`${part.slice("header ".length)}: ann`)} ` : "")).join("");
    say(byID("empty"), `No requests yet. Send some from this page, or: curl -i ${headers}http://${setup.nodes[0]}/`);
    this.figures = new Figures(["Requests a second, last 10\u00a0s", "Refused, last 10\u00a0s", "Answered without waiting, last 10\u00a0s", "A wait takes, last 10\u00a0s"]);
    byID("load-rule").replaceChildren(...setup.rules.map(({ name }) => new Option(name, name)));
    this.begin();
    this.eachNode(setup.nodes.length <= fewNodes && this.few);
    this.inSight = new Set(); // the drawn nodes, if there are many
    this.sight?.disconnect();
    this.sight = observer(this.inSight, () => {
      if (this.stands) this.state(this.stands);
    });
    this.nodes = setup.nodes.map((address, number) => this.node(address, number));
    const alone = setup.nodes.length > 1 ? "of the key with most at each node, added up, because nodes count alone" : "of the key with most";
    this.curves = setup.rules.map((rule) => rule.limits.map((limit) => new Curve(
      byID("curves"), `${ruleName(rule.name, rule.shadow)}: in ${duration(limit.window_ms)}`,
      `Hits that count, ${rule.shared ? "of the key with most, all nodes together" : alone}.${rule.varies ? " Keys may have limits of their own, which the line does not show." : ""}`,
      !rule.varies)));
    byID("curves-legend").hidden = false;
    this.choose(undefined);
  }

  // begin begins the history of all proxies together.
  begin() {
    this.totals = this.fixed.rules.map(() => ({ allowed: new Series(), refused: new Series() }));
    this.all = Object.fromEntries(["requests", "answered", "waited", "waited_ns"].map((name) => [name, new Series()]));
  }

  // shows says whether a rule is drawn.
  shows(name) {
    return this.chosen === undefined ? this.few : this.chosen === name;
  }

  // total has the history of a rule.
  total(name) {
    return this.totals[this.fixed.rules.findIndex((rule) => rule.name === name)];
  }

  // choose has everything show a rule alone, or all for undefined.
  choose(name) {
    this.chosen = name;
    this.table.choose(name);
    this.curves.forEach((limits, i) => limits.forEach((curve) => {
      curve.element.hidden = !this.shows(this.fixed.rules[i].name);
    }));
    for (const { rules } of this.nodes) for (const [rule, { view }] of rules) view.element.hidden = !this.shows(rule);
    if (this.stands) this.state(this.stands);
    this.again();
  }

  // eachNode shows or hides the nodes. Hidden nodes keep no history.
  eachNode(on) {
    byID("nodes").hidden = !on;
    byID("more-nodes").hidden = false;
    const button = byID("more-nodes").querySelector("button");
    say(button, on ? "Hide the proxies" : "Show each proxy");
    button.setAttribute("aria-expanded", on);
    button.onclick = () => {
      this.eachNode(byID("nodes").hidden);
      this.again();
    };
  }

  node(address, number) {
    const element = card("node");
    say(element.querySelector("h2"), `Proxy ${number}`);
    say(element.querySelector(".status"), address);
    byID("nodes").append(element);
    this.sight.observe(element);
    byID("load-node").append(new Option(`proxy ${number}`, number));
    const cut = byID("cut").appendChild(document.createElement("button"));
    cut.type = "button";
    cut.addEventListener("click", () => {
      const { cut: now } = this.faults;
      this.fault({ cut: now.includes(number) ? now.filter((n) => n !== number) : [...now, number] });
    });
    const facts = {};
    for (const [name, text] of figures) {
      const row = element.querySelector("dl").appendChild(document.createElement("div"));
      row.appendChild(document.createElement("dt")).textContent = text;
      const value = row.appendChild(document.createElement("dd"));
      const total = value.appendChild(document.createElement("span"));
      total.className = name;
      value.append(" ");
      facts[name] = { total, pace: value.appendChild(document.createElement("small")) };
    }
    return { element, cut, facts, series: Object.fromEntries(figures.map(([name]) => [name, new Series()])), rules: new Map() };
  }

  // moment comes every half second.
  moment(moment) {
    if (moment.n <= this.last) this.forget(); // the server has started again
    this.last = moment.n;
    this.now = moment;
    this.curves.forEach((limits, i) => limits.forEach((curve, j) => curve.used.add(moment.at, moment.most[i][j])));
    this.totals.forEach(({ allowed, refused }, i) => {
      allowed.add(moment.at, moment.rules[i].allowed);
      refused.add(moment.at, moment.rules[i].refused);
      this.fixed.rules[i].shadow = Boolean(moment.rules[i].shadow); // rules move while proxies run
    });
    for (const [name, series] of Object.entries(this.all)) series.add(moment.at, moment.all[name]);
    this.tabulate(moment);
    if (byID("nodes").hidden) return;
    moment.nodes.forEach((node, i) => {
      for (const [name, series] of Object.entries(this.nodes[i].series)) series.add(moment.at, node[name]);
      for (const rule of node.rules ?? []) {
        let known = this.nodes[i].rules.get(rule.name);
        if (!known) {
          if (!this.shows(rule.name)) continue;
          known = { view: new Rule(this.nodes[i].element.querySelector(".rules"), ruleName(rule.name, rule.shadow)), allowed: new Series(), refused: new Series() };
          this.nodes[i].rules.set(rule.name, known);
        }
        known.allowed.add(moment.at, rule.allowed);
        known.refused.add(moment.at, rule.refused);
        known.held = rule.held;
      }
    });
  }

  // tabulate updates the table.
  tabulate(moment) {
    this.fixed.rules.forEach((rule, i) => {
      const shares = rule.limits.map((limit, j) => ({ limit, most: moment.most[i][j], share: moment.most[i][j] / Math.max(1, limit.limit) }));
      const nearest = shares.reduce((a, b) => (b.share > a.share ? b : a));
      this.table.set(rule.name, moment.at, {
        title: ruleName(rule.name, rule.shadow), used: nearest.share,
        text: `${count(nearest.most)} of ${count(nearest.limit.limit)} in ${duration(nearest.limit.window_ms).replace(" ", "\u00a0")}`,
        passed: this.totals[i].allowed.pace, refused: this.totals[i].refused.pace,
      });
    });
  }

  // note marks the changes since the last state.
  note(before, { faults, limits = {} }) {
    const at = this.now?.at ?? 0;
    const cut = faults.cut.map((n) => `proxy ${n}`).join(", ");
    this.events.outage(at, faults.away ? "the backend is away" : cut ? `${cut} cut off` : faults.delay_ms > 0 ? `answers come ${faults.delay_ms} ms late` : "");
    if (!before) return;
    for (const { name, limits: configured } of this.fixed.rules) {
      configured.forEach((limit, j) => {
        const now = limits[name]?.[j] ?? limit.limit;
        if (now !== (before.limits?.[name]?.[j] ?? limit.limit)) this.events.mark(at, `the limit of ${name} in ${duration(limit.window_ms)} is ${count(now)}`);
      });
    }
  }

  forget() {
    this.begin();
    this.table.forget();
    for (const curve of this.curves.flat()) curve.used = new Series();
    for (const { rules, series } of this.nodes) {
      for (const name of Object.keys(series)) series[name] = new Series();
      for (const rule of rules.values()) Object.assign(rule, { allowed: new Series(), refused: new Series() });
    }
  }

  // state comes after the moments that it belongs to. A state from before the last change would take
  // that back for a moment.
  state(state) {
    this.looked = state.looked ??= this.looked;
    if (state.changes < this.changes) return;
    this.note(this.stands, state);
    this.stands = state;
    const { faults, load, looked, sent } = state;
    if (!this.silent) stands(words(this.fixed, state, this.now, (name) => this.table.now(name)?.refused ?? 0), state.since);
    this.numbers();
    byID("things").hidden = false;
    say(byID("sent"), `Sent by these controls alone: ${count(sent.passed)}\u00a0passed, ${count(sent.refused)}\u00a0refused, ${count(sent.failed)}\u00a0failed.`);
    byID("sent").classList.toggle("color-refused", sent.failed > 0);
    this.table.show();
    this.nodes.forEach(({ element, rules, facts, series, cut }, i) => {
      const seen = !byID("nodes").hidden && (this.nodes.length <= fewNodes || this.inSight.has(element));
      for (const { view, allowed, refused, held } of seen ? rules.values() : []) {
        view.show(allowed.perSecond(), refused.perSecond(), { allowed: allowed.last, refused: refused.last }, held);
      }
      for (const [name, { total, pace }] of Object.entries(seen ? facts : {})) {
        say(total, count(series[name].last));
        say(pace, rate(series[name].pace));
      }
      const off = faults.cut.includes(i);
      say(cut, off ? `Connect proxy ${i}` : `Cut proxy ${i} off`);
      cut.setAttribute("aria-pressed", off);
    });
    this.fixed.rules.forEach((rule, i) => rule.limits.forEach((limit, j) => {
      const curve = this.curves[i][j];
      if (curve.element.hidden) return;
      const inForce = state.limits?.[rule.name]?.[j] ?? limit.limit;
      curve.show(inForce, `${count(curve.used.last)} of ${count(inForce)}`, 0, this.events);
    }));
    // While the store can't be read, the page knows who refuses, but not whom.
    const own = () => this.fixed.rules.map(({ name, shadow }) => ({ rule: name, shadow, used: [], refused: [] }));
    this.keys.show(looked.top.rules?.length > 0 ? looked.top.rules : own(), looked.failed ? "Keys are not known while the store can’t be read." : faults.away ? "Keys are not known while the backend is away." : state.backend ? "Proxies report about every five seconds which keys they see." : "Keys are not known without a backend.", this.chosen);
    const away = faults.away || faults.cut.length > 0;
    const does = { allow: "let all pass", deny: "refuse all" }[this.fixed.failure] ?? "decide alone, by what they know";
    this.drawer.again(away ? [`These are the backend’s numbers. Proxies that do not reach it ${does}.`] : []);
    byID("look-up").hidden = !state.backend || this.drawer.rules.length === 0;
    if (state.backend) this.changed.again();
    byID("changes").hidden = !state.backend;
    byID("do-backend").hidden = !state.backend;
    byID("idle").hidden = !state.backend || byID("nodes").hidden;
    say(byID("away"), faults.away ? "Start the backend" : "Stop the backend");
    byID("away").setAttribute("aria-pressed", faults.away);
    this.limits.show(state.limits ?? {});
    if (!state.backend) byID("do-limit").hidden = true;
    if (this.changing > 0) return;
    this.faults = faults;
    // Another page may have changed them.
    const keep = (id, value) => {
      if (byID(id) !== document.activeElement) byID(id).value = value;
    };
    keep("load-rate", load.rate);
    keep("load-users", load.users);
    keep("load-node", load.node);
    keep("load-rule", load.rule);
    keep("delay", faults.delay_ms);
    this.texts();
  }

  // numbers shows the figures and the chart of all proxies together.
  numbers() {
    const { requests, answered, waited, waited_ns: nanos } = this.all;
    const { rules } = this.fixed;
    const refused = answered.perSecond();
    const all = requests.perSecond().map(([time, n], i) => [time, Math.max(0, n - refused[i][1]), refused[i][1]]);
    const since = (this.now?.at ?? 0) - range.ms;
    const bands = this.chosen === undefined ? banded(rules.filter(({ shadow }) => !shadow).map(({ name }) => {
      const { points, last } = this.total(name).refused;
      return [name, last - (points.find(([time]) => time >= since)?.[1] ?? last)];
    })) : [];
    let flow = all;
    if (this.chosen !== undefined) {
      const one = this.total(this.chosen);
      const stopped = one.refused.perSecond();
      flow = one.allowed.perSecond().map(([time, passed], i) => [time, passed, stopped[i][1]]);
    } else if (bands.length > 0) {
      const by = bands.map((name) => this.total(name).refused.perSecond());
      flow = all.map((point, i) => [...point, ...by.map((points) => points[i][1])]);
    }
    this.flow.show(flow, bands, this.chosen, this.events, this.now?.at);
    const last = (points) => points.at(-1)?.[1];
    const newest = (points) => (points.at(-1)?.[0] >= this.now.at ? last(points) : undefined);
    const at = all.map(([time, passed, stopped]) => [time, passed + stopped]);
    this.figures.show(0, count(last(at) ?? 0), at);
    const refusals = ratio(answered, requests);
    this.figures.show(1, share(newest(refusals)), refusals, "refused");
    const free = ratio(waited, requests).map(([time, part]) => [time, 1 - part]);
    this.figures.show(2, newest(free) === undefined ? "–" : percent(newest(free)), free);
    const waits = ratio(nanos, waited).map(([time, each]) => [time, each / 1e6]);
    this.figures.show(3, newest(waits) !== undefined ? `${last(waits) < 10 ? last(waits).toFixed(1) : count(last(waits))} ms` : "–", waits);
  }

  controls() {
    for (const id of ["load-rate", "load-users", "load-node", "load-rule"]) {
      byID(id).addEventListener("input", () => {
        this.texts();
        this.load();
      });
    }
    for (const button of document.querySelectorAll("[data-burst]")) {
      button.addEventListener("click", () => this.post("burst", { requests: Number(button.dataset.burst) }));
    }
    byID("away").addEventListener("click", () => this.fault({ away: !this.faults.away }));
    byID("delay").addEventListener("change", () => this.fault({ delay_ms: Number(byID("delay").value) }));
    this.limits = new Limits((asked) => this.post("limit", asked));
    this.texts();
  }

  texts() {
    const rate = Number(byID("load-rate").value);
    say(byID("load-rate-text"), rate === 0 ? "none" : `${rate} a second`);
    say(byID("load-users-text"), byID("load-users").value);
  }

  // load sends the values of the sliders. Changes during a request are sent together after it.
  async load() {
    this.loadAgain = true;
    if (this.loading) return;
    this.loading = true;
    while (this.loadAgain) {
      this.loadAgain = false;
      await this.post("load", { rate: Number(byID("load-rate").value), users: Number(byID("load-users").value), node: Number(byID("load-node").value), rule: byID("load-rule").value });
    }
    this.loading = false;
  }

  // fault changes the faults, those included that the server does not have yet.
  fault(change) {
    this.faults = { ...this.faults, ...change };
    this.post("faults", this.faults);
  }

  // post sends a change once those before it have ended, and returns whether it was accepted.
  post(path, body) {
    this.changing++;
    this.posted = this.posted.then(() => this.send(path, body)).finally(() => this.changing--);
    return this.posted;
  }

  async send(path, body) {
    let change = "";
    try {
      const response = await fetch(`live/${path}`, {
        method: "POST", headers: { "content-type": "application/json", "x-weir": "1" }, body: JSON.stringify(body),
      });
      if (response.ok) this.changes = Number(response.headers.get("x-weir-changes"));
      else change = `Refused: ${await refusal(response)}`;
    } catch (error) {
      change = `weir run did not answer: ${error.message}. Try again.`;
    }
    this.notice({ change });
    if (change) byID("live-notice").scrollIntoView({ block: "nearest" }); // on a phone the controls are far below
    return !change;
  }
}
