import { Table, byID, clock, keyName, pace, ruleName, say } from "./parts.js";
import { time } from "./drawer.js";

// stands shows in a few words whether limits are shared, and since when they are not.
export function stands({ level, title, text }, since, now) {
  byID("stands").dataset.level = level;
  say(byID("live-title"), title);
  say(byID("live-told"), text);
  say(byID("live-since"), since && level !== "shared" ? `Since ${clock(since)}${now > since ? `, for ${time(now - since)}` : ""}.` : "");
}

// Keys is the table of the keys that are refused most, and then of those nearest to a limit.
export class Keys {
  constructor(chosen) {
    byID("tables").replaceChildren();
    this.chosen = chosen;
    this.table = new Table(byID("tables"), "Keys, last 10 s", ["Key", "Rule", "Hits/s", "Refused/s", "Limit used"]);
  }

  // show shows the keys that reports on rules have, or else the text none.
  show(rules, none) {
    const keys = new Map();
    for (const rule of rules) {
      const recent = rule.recent_seconds > 0;
      for (const key of [...rule.used, ...rule.refused]) {
        const hits = recent ? key.recent_hits_per_second : key.hits_per_second;
        const refused = recent ? key.recent_refused_per_second : key.refused_per_second;
        const known = keys.get(`${rule.rule} ${key.hash}`);
        if (!known) keys.set(`${rule.rule} ${key.hash}`, { rule, key, hits: hits ?? 0, refused: refused ?? 0 });
        else Object.assign(known, { hits: Math.max(known.hits, hits ?? 0), refused: Math.max(known.refused, refused ?? 0) });
      }
    }
    const all = [...keys.values()].sort((a, b) => b.refused - a.refused || b.key.use - a.key.use || b.hits - a.hits).slice(0, 12);
    const rows = all.map(({ rule, key, hits, refused }) => [keyName(key) || "(empty)", ruleName(rule.rule, rule.shadow), pace(hits), pace(refused), key.use]);
    this.table.show(rows, none, (i) => this.chosen(all[i].rule.rule, all[i].key));
  }
}
