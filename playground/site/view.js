import { Table, byID, clock, count, keyName, pace, percent, ruleName, say, since } from "./parts.js";

// What does nothing while nobody answers.
const controls = ["things", "move", "act", "look-up"];

// stands shows in a few words whether limits are shared, and since when they are not. What it said before nobody
// answered stays, as that.
export function stands({ level, title, text }, begun) {
  const [bar, head, who] = ["stands", "live-title", "live-who"].map(byID);
  const silent = level === "dead";
  if (silent && begun && bar.dataset.level !== level) {
    say(who, `Before: ${head.textContent[0].toLowerCase()}${head.textContent.slice(1)}. ${who.textContent}`);
    who.classList.remove("color-refused");
  }
  bar.dataset.level = level;
  for (const id of controls) byID(id).inert = silent;
  say(head, begun && level !== "shared" ? `${title} since ${clock(begun)}` : title);
  say(byID("live-told"), text);
}

// dead shows that nobody answers since a time, and why.
export function dead(server, begun, reason) {
  stands({ level: "dead", title: `No answer from ${server}`, text: `Proxies that run go on limiting by themselves: this page has no news of them. What it shows is old, and its controls do nothing, until ${server} answers. (${reason})` }, begun);
}

// share shows which part of all requests is refused, if that is known, and returns it as a text.
export function share(part) {
  const text = part === undefined ? "–" : percent(part);
  say(byID("live-share"), part > 0 ? `${text} refused` : "");
  byID("live-part").style.width = `${100 * (part ?? 0)}%`;
  return text;
}

// of is what a report has of a rule or a key, of late if that is known.
const of = (rule, key, name) => (!(rule.recent_seconds > 0) ? (key ?? rule)[name] : key ? key[`recent_${name}`] : rule.recent?.[name]) ?? 0;

// few is how many keys the table has at most.
const few = 12;

// Keys is the table of the keys that are refused most, and then of those nearest to a limit.
export class Keys {
  // chosen is called with the rule and the key of a row. missed is called with the name of a key that
  // nobody has reported, and absent says where to find such a key. table has what each rule passes and refuses a second
  // now, and refused returns the latter over time.
  constructor(chosen, missed, absent, table, refused) {
    byID("tables").replaceChildren();
    Object.assign(this, { chosen, absent, rules: table, refused, shown: [], told: [[], ""] });
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
    this.who(rules);
    if ([rules, none, only].every((part, i) => part === this.told[i])) return this.rows();
    this.told = [rules, none, only];
    this.update();
  }

  // who shows who is refused most, by which rule and since when. The key stays named while no reports come.
  who(rules) {
    if (byID("stands").dataset.level === "dead") return;
    const refusals = ({ rule, shadow }) => (shadow ? 0 : this.rules.now(rule)?.refused ?? 0);
    const most = rules.reduce((a, b) => (refusals(b) > (a ? refusals(a) : 0) ? b : a), undefined);
    byID("live-who").classList.toggle("color-refused", Boolean(most));
    if (!most) this.before = undefined;
    if (!most) return say(byID("live-who"), rules.length > 0 ? "Nobody is refused." : "");
    const begun = since(this.refused(most.rule));
    const by = (key) => of(most, key, "refused_per_second");
    const key = most.refused.reduce((a, b) => (by(b) > (a ? by(a) : 0) ? b : a), undefined);
    let part = key ? by(key) / Math.max(of(most, undefined, "refused_hits_per_second"), by(key)) : 0;
    if (part > 0.995) part = 1;
    if (part < 0.25) { // among equals a name would point at the wrong one
      if (key) this.before = undefined;
      const before = this.before?.rule === most.rule ? ` Refused most before: ${this.before.name}.` : "";
      return say(byID("live-who"), `${most.rule} refuses ${pace(refusals(most))} a second${begun}${key ? ", spread over many keys" : ""}.${before}`);
    }
    this.before = { rule: most.rule, name: keyName(key) || "all requests" };
    say(byID("live-who"), `Refused most: ${this.before.name}, by ${most.rule}${begun}: ${pace(part * refusals(most))} a second, ${part < 1 ? percent(part) : "all"} of its refusals.`);
  }

  // update shows what was told last. There may be many keys, and few are shown.
  update() {
    const [rules, none, only] = this.told;
    const wanted = this.input.value.trim().toLowerCase();
    const before = (a, b) => b.refused - a.refused || b.key.use - a.key.use || b.hits - a.hits;
    this.shown = [];
    let all = 0;
    for (const rule of rules) {
      if (only !== undefined && rule.rule !== only) continue;
      const keys = new Map();
      for (const key of [...rule.used, ...rule.refused]) {
        if (wanted && !keyName(key).toLowerCase().includes(wanted)) continue;
        const hits = of(rule, key, "hits_per_second");
        const refused = of(rule, key, "refused_per_second");
        const known = keys.get(key.hash);
        if (!known) keys.set(key.hash, { rule, key, hits, refused });
        else Object.assign(known, { hits: Math.max(known.hits, hits), refused: Math.max(known.refused, refused) });
      }
      all += keys.size;
      for (const key of keys.values()) {
        if (this.shown.length === few && before(key, this.shown.at(-1)) >= 0) continue;
        this.shown.push(key);
        this.shown = this.shown.sort(before).slice(0, few);
      }
    }
    this.none = wanted ? `No proxy has reported such a key of late. ${this.absent}` : none;
    this.more = all > few ? `and ${count(all - few)} more` : "";
    this.rows();
  }

  // rows shows the keys. Reports cover other seconds than the page: a rule's numbers are the page's, and those of its
  // keys in proportion.
  rows() {
    const shown = this.shown.map(({ rule, key, hits, refused }) => {
      const now = this.rules.now(rule.rule);
      const scaled = (n, name, amount) => (now && of(rule, undefined, name) > 0 ? (n * amount) / of(rule, undefined, name) : n);
      return [keyName(key) || "(empty)", ruleName(rule.rule, rule.shadow), pace(scaled(hits, "requests_per_second", now?.passed + now?.refused)), pace(scaled(refused, "refused_requests_per_second", now?.refused)), key.use];
    });
    this.table.show(shown, this.none, this.more, (i) => this.choose(i));
    shown.forEach((texts, i) => this.table.body.rows[i].cells[3].classList.toggle("color-refused", texts[3] !== "0.0"));
  }
}
