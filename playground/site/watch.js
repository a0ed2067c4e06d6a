import { Rule, Series, Table, byID, card, duration, keyName, say } from "./parts.js";
import { Stream } from "./stream.js";

// Watch is the live view of weir serve: what its nodes report.
export class Watch {
  constructor() {
    byID("ask").hidden = false;
    byID("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.asked = { namespace: byID("ask-namespace").value, token: byID("ask-token").value };
      byID("nodes").replaceChildren();
      byID("tables").replaceChildren();
      this.rules = new Map();
      this.used = new Table(byID("tables"), "Keys with most hits", ["Key", "Rule", "Hits/s", "Limit used"]);
      this.refused = new Table(byID("tables"), "Keys that are refused most", ["Key", "Rule", "Refused/s", "Limit used"]);
      this.overrides = new Table(byID("tables"), "Overrides in force", ["Key", "Rule", "Limits", "Until"]);
      this.show(false);
      this.show(true);
    });
  }

  show(on) {
    if (!on) {
      this.stream?.stop();
      this.stream = undefined;
    } else if (this.asked && !this.stream) {
      const { namespace, token } = this.asked;
      this.stream = new Stream(`v1/watch?namespace=${encodeURIComponent(namespace)}`, {
        headers: () => (token ? { authorization: `Bearer ${token}` } : {}),
        told: (_, data) => this.told(data),
        trouble: (reason, final) => {
          say(byID("live-notice"), reason && (final ? `Refused: ${reason}` : `weir serve does not answer: ${reason}. Trying again.`));
          byID("live-notice").hidden = !reason;
        },
      });
    }
  }

  told({ at, ready, top, overrides }) {
    const store = ready ? "The store takes hits." : "The store fails: nodes count alone, and push what they count when it is back.";
    if (!top) {
      say(byID("live-told"), store);
      return;
    }
    say(byID("live-told"), `${top.nodes === 1 ? "1 node reports" : `${top.nodes} nodes report`} of ${this.asked.namespace}. ${store}`);
    for (const rule of top.rules) this.rule(rule, at);
    const keys = (of, rate) => top.rules.flatMap((rule) => rule[of].map((key) =>
      [keyName(key), rule.rule, key[rate].toFixed(1), `${Math.round(100 * key.use)} %`]))
      .sort((a, b) => b[2] - a[2]).slice(0, 10);
    const none = "No node has reported any in the last half minute.";
    this.used.show(keys("used", "hits_per_second"), none);
    this.refused.show(keys("refused", "refused_per_second"), "None.");
    this.overrides.show((overrides ?? []).slice(0, 50).map((o) => [
      o.key.join(" "), o.rule, o.limits.map((l) => `${l.limit} in ${duration(l.width_ms)}`).join(", "), o.until ? new Date(o.until).toLocaleString() : "–",
    ]), "None.");
  }

  rule(rule, at) {
    let known = this.rules.get(rule.rule);
    if (!known) {
      const element = card("node");
      element.querySelector("dl").remove();
      byID("nodes").append(element);
      known = { element, view: new Rule(element.querySelector(".rules"), "Requests"), passed: new Series(), refused: new Series() };
      this.rules.set(rule.rule, known);
    }
    say(known.element.querySelector("h2"), rule.shadow ? `${rule.rule} (shadow)` : rule.rule);
    say(known.element.querySelector(".status"), rule.nodes === 1 ? "1 node" : `${rule.nodes} nodes`);
    known.passed.add(at, Math.max(0, rule.requests_per_second - rule.refused_requests_per_second));
    known.refused.add(at, rule.refused_requests_per_second);
    known.view.show(known.passed.points, known.refused.points);
  }
}
