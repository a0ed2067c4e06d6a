import { Table, byID, clock, count, keyName, pace, ruleName, say, since } from "./parts.js";

// stands shows in a few words whether limits are shared, and since when they are not.
export function stands({ level, title, text }, begun) {
  byID("stands").dataset.level = level;
  say(byID("live-title"), begun && level !== "shared" ? `${title} since ${clock(begun)}` : title);
  say(byID("live-told"), text);
}

// dead shows that nobody answers since a time, and why.
export function dead(server, begun, reason) {
  stands({ level: "dead", title: `No answer from ${server}`, text: `Does it still run? These are its last figures. The page goes on by itself when it answers. (${reason})` }, begun);
}

// refusals returns how many hits a second of a rule or of its key are refused, of late if that is known.
const refusals = (rule, key) => (key ?? rule)[rule.recent_seconds > 0 ? "recent_refused_per_second" : key ? "refused_per_second" : "refused_hits_per_second"] ?? rule.recent?.refused_hits_per_second ?? 0;

// who shows who is refused most, by which rule and since when: refused returns a rule's refusals a second over time.
function who(rules, refused) {
  let most = { of: 0 };
  for (const rule of rules) {
    if (rule.shadow) continue;
    for (const key of rule.refused) if (refusals(rule, key) > most.of) most = { of: refusals(rule, key), rule, key };
    if (!(most.of > 0) && refusals(rule) > 0) most = { of: 0, rule };
  }
  byID("live-who").classList.toggle("color-refused", Boolean(most.rule));
  if (!most.rule) say(byID("live-who"), rules.length > 0 ? "Nobody is refused." : "");
  else if (!most.key) say(byID("live-who"), `${most.rule.rule} refuses ${pace(refusals(most.rule))} a second${since(refused(most.rule.rule))}.`);
  else {
    const begun = since(refused(most.rule.rule));
    const share = Math.min(1, most.of / Math.max(refusals(most.rule), most.of));
    // Among equals a name would point at the wrong one.
    if (share < 0.25) say(byID("live-who"), `${most.rule.rule} refuses ${pace(refusals(most.rule))} a second${begun}, and none of its keys has a quarter of that.`);
    else say(byID("live-who"), `Refused most: ${keyName(most.key) || "all requests"}, by ${most.rule.rule}${begun}: ${pace(most.of)} a second, ${Math.round(100 * share)} % of what it refuses.`);
  }
}

// few is how many keys the table has at most.
const few = 12;

// Keys is the table of the keys that are refused most, and then of those nearest to a limit.
export class Keys {
  // chosen is called with the rule and the key of a row. missed is called with the name of a key that
  // nobody has reported, and absent says where to find such a key. refused returns the refusals a second of a rule
  // over time.
  constructor(chosen, missed, absent, refused) {
    byID("tables").replaceChildren();
    Object.assign(this, { chosen, absent, refused, shown: [], told: [[], ""] });
    this.table = new Table(byID("tables"), "Keys, last 10 s", ["Key", "Rule", "Hits/s", "Refused/s", "Limit used"]);
    const label = this.table.header.appendChild(document.createElement("label"));
    label.className = "field";
    label.innerHTML = '<span class="unseen">Find a key</span><input type="search" id="find-key" placeholder="Find a key">';
    this.input = label.querySelector("input");
    this.input.addEventListener("input", () => this.update());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // it goes to no field that gets the focus
      const wanted = this.input.value.trim();
      const exact = this.shown.findIndex(({ key }) => keyName(key) === wanted);
      if (exact >= 0 || this.shown.length === 1) this.choose(Math.max(0, exact));
      else if (this.shown.length === 0) missed(wanted);
    });
  }

  choose(i) {
    this.chosen(this.shown[i].rule.rule, this.shown[i].key);
  }

  // show shows the keys that reports on rules have, or else the text none. only is the name of the
  // only rule whose keys are shown, if any.
  show(rules, none, only) {
    if ([rules, none, only].every((part, i) => part === this.told[i])) return;
    this.told = [rules, none, only];
    who(rules, this.refused);
    this.update();
  }

  // update shows what was told last. There may be many keys, and few are shown.
  update() {
    let [rules, none, only] = this.told;
    const wanted = this.input.value.trim().toLowerCase();
    const before = (a, b) => b.refused - a.refused || b.key.use - a.key.use || b.hits - a.hits;
    this.shown = [];
    let all = 0;
    for (const rule of rules) {
      if (only !== undefined && rule.rule !== only) continue;
      const recent = rule.recent_seconds > 0;
      const keys = new Map();
      for (const key of [...rule.used, ...rule.refused]) {
        if (wanted && !keyName(key).toLowerCase().includes(wanted)) continue;
        const hits = recent ? key.recent_hits_per_second : key.hits_per_second;
        const refused = recent ? key.recent_refused_per_second : key.refused_per_second;
        const known = keys.get(key.hash);
        if (!known) keys.set(key.hash, { rule, key, hits: hits ?? 0, refused: refused ?? 0 });
        else Object.assign(known, { hits: Math.max(known.hits, hits ?? 0), refused: Math.max(known.refused, refused ?? 0) });
      }
      all += keys.size;
      for (const key of keys.values()) {
        if (this.shown.length === few && before(key, this.shown.at(-1)) >= 0) continue;
        this.shown.push(key);
        this.shown = this.shown.sort(before).slice(0, few);
      }
    }
    const rows = this.shown.map(({ rule, key, hits, refused }) => [keyName(key) || "(empty)", ruleName(rule.rule, rule.shadow), pace(hits), pace(refused), key.use]);
    if (wanted) none = `No proxy has reported such a key of late. ${this.absent}`;
    this.table.show(rows, none, all > few ? `and ${count(all - few)} more` : "", (i) => this.choose(i));
  }
}
