import { Curve, Events, Rule, Series, Table, byID, card, duration, keyName, ruleName, say } from "./parts.js";
import { Counted } from "./counted.js";
import { Rules } from "./rules.js";
import { Stream } from "./stream.js";

// With more rules than these, a table comes first, and only the rules that are opened in it are
// drawn.
const few = 6;

// Watch is the live view of weir serve: the reports of its nodes.
export class Watch {
  constructor() {
    byID("ask").hidden = false;
    byID("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.asked = { namespace: byID("ask-namespace").value, token: byID("ask-token").value };
      byID("curves").replaceChildren();
      byID("nodes").replaceChildren();
      byID("tables").replaceChildren();
      byID("rules").replaceChildren();
      this.table = new Rules(byID("rules"), () => {
        this.choose();
        if (this.told) this.watched(this.told);
      });
      this.events = new Events();
      this.last = 0; // the number of the last moment
      this.rules = new Map();
      this.choose();
      this.used = new Table(byID("tables"), "Keys with most hits", ["Key", "Rule", "Hits/s", "Limit used"]);
      this.refused = new Table(byID("tables"), "Keys that are refused most", ["Key", "Rule", "Refused/s", "Limit used"]);
      this.overrides = new Table(byID("tables"), "Overrides in force", ["Key", "Rule", "Limits", "Until"]);
      this.counted = new Counted(this.asked.namespace, this.headers());
      this.show(false);
      this.show(true);
    });
  }

  // headers returns the header with the token.
  headers() {
    const { token } = this.asked;
    return token ? { authorization: `Bearer ${token}` } : {};
  }

  show(on) {
    if (!on) {
      this.stream?.stop();
      this.stream = undefined;
    } else if (this.asked && !this.stream) {
      const { namespace } = this.asked;
      this.stream = new Stream(`v1/watch?namespace=${encodeURIComponent(namespace)}`, {
        headers: () => ({ "last-event-id": `${this.last}`, ...this.headers() }),
        told: (name, data) => this[name](data),
        trouble: (reason, final) => {
          say(byID("live-notice"), reason && (final ? `Refused: ${reason}` : `weir serve does not answer: ${reason}. Trying again.`));
          byID("live-notice").hidden = !reason;
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
        used: rule.use, text: rule.use === undefined ? "no key reported" : `${Math.round(100 * rule.use)} %`, passed: rule.passed, refused: rule.refused,
      });
    }
  }

  forget() {
    this.rules.forEach((rule) => rule.forget());
    this.table.forget();
  }

  // choose draws the rules that are open in the table, or all if there are few.
  choose() {
    byID("rules").hidden = this.rules.size <= few;
    for (const [name, rule] of this.rules) rule.chosen = this.rules.size <= few || this.table.open.has(name);
  }

  // watched comes after the moments.
  watched(told) {
    this.told = told;
    const { at, ready, top, overrides } = told;
    this.events.outage(at, ready ? "" : "the store fails");
    this.table.show();
    const store = ready ? "The store takes hits." : "The store fails: nodes count alone, and push what they count when it is back.";
    if (!top) {
      say(byID("live-told"), store);
      return;
    }
    say(byID("live-told"), `${top.nodes === 1 ? "1 node reports" : `${top.nodes} nodes report`} of ${this.asked.namespace}. ${store}`);
    for (const [name, known] of this.rules) known.show(top.rules.find((rule) => rule.rule === name), at, this.events);
    const keys = (table, of, rate, none) => {
      const most = top.rules.flatMap((rule) => rule[of].map((key) => ({ rule, key })))
        .sort((a, b) => b.key[rate] - a.key[rate]).slice(0, 10);
      const rows = most.map(({ rule, key }) => [keyName(key) || "(empty)", rule.rule, key[rate].toFixed(1), `${Math.round(100 * key.use)} %`]);
      table.show(rows, none, (i) => this.counted.choose(most[i].rule, most[i].key));
    };
    keys(this.used, "used", "hits_per_second", "No node has reported any in the last half minute.");
    keys(this.refused, "refused", "refused_per_second", "None.");
    this.counted.again();
    this.overrides.show((overrides ?? []).slice(0, 50).map((o) => [
      o.key.join(" "), o.rule, o.limits.map((l) => `${l.limit} in ${duration(l.width_ms)}`).join(", "), o.until ? new Date(o.until).toLocaleString() : "–",
    ]), "None.");
  }

  // known returns the view of a rule.
  known(rule) {
    if (!this.rules.has(rule)) {
      this.rules.set(rule, new Watched(rule));
      this.choose();
    }
    byID("curves-legend").hidden = false;
    return this.rules.get(rule);
  }
}

// Watched is the view of a rule that nodes report.
class Watched {
  constructor(rule) {
    this.chosen = true;
    this.element = card("node");
    this.element.querySelector("dl").remove();
    byID("nodes").append(this.element);
    this.view = new Rule(this.element.querySelector(".rules"), "Requests");
    this.curve = new Curve(byID("curves"), `${rule}: share of the limit`,
      "For the key that is nearest to a limit, as a node saw it last. Nodes report at most 100\u00a0%, which includes hits that other nodes have leased.");
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

  // show shows the nodes' reports, if there are any.
  show(rule, at, events) {
    this.element.hidden = !rule || !this.chosen;
    this.curve.element.hidden = !this.chosen;
    if (!this.chosen) return;
    if (rule) {
      say(this.element.querySelector("h2"), ruleName(rule.rule, rule.shadow));
      say(this.element.querySelector(".status"), rule.nodes === 1 ? "1 node" : `${rule.nodes} nodes`);
      this.view.show(this.passed.points, this.refused.points);
    }
    const use = this.use === undefined ? "no node has reported a key" : `${Math.round(100 * this.use)} %`;
    this.curve.show(100, rule ? use : "no node reports", at, events);
  }
}
