import { gauge, observer, pace, rate, say } from "./parts.js";

// The time that a small curve shows, in milliseconds, and its size, in pixels.
const past = 60_000;
const wide = 96;
const high = 24;

// Columns are those that sort the table: by a value of the rule, largest first, or by its name.
const columns = [
  ["Rule", (rule) => rule.title],
  ["Used", (rule) => rule.used ?? -1],
  ["Passed/s", (rule) => rule.passed],
  ["Refused/s", (rule) => rule.refused],
  ["Last minute", undefined],
];

// Rules is a table of many rules. At first, the rules nearest to their limits come first, after the
// rule that is chosen. Only visible rows are drawn.
export class Rules {
  #by = 1;
  #down = true;
  #rows = new Map(); // by the rule's name
  #seen = new Set(); // visible rows
  #wanted = "";

  // choose is called with the name of a rule that is clicked, or with undefined for the chosen one.
  constructor(parent, choose) {
    this.clicked = choose;
    const section = document.createElement("section");
    section.className = "card lane table rules-table";
    section.innerHTML = `<header><h2>Rules, last 10 s</h2><label class="field"><span class="unseen">Filter rules</span><input type="search" placeholder="Filter"></label></header>
      <div class="scrolled"><table aria-label="Rules"><thead><tr></tr></thead><tbody></tbody></table></div><p class="hint"></p><i class="color-passed" hidden></i><i class="color-refused" hidden></i>`;
    this.body = section.querySelector("tbody");
    this.none = section.querySelector(".hint");
    this.inks = [...section.querySelectorAll("i")];
    this.heads = columns.map(([name, value], i) => {
      const cell = section.querySelector("thead tr").appendChild(document.createElement("th"));
      cell.scope = "col";
      if (!value) {
        cell.textContent = name;
        return cell;
      }
      const button = cell.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => {
        this.#down = this.#by === i ? !this.#down : i > 0;
        this.#by = i;
        this.show();
      });
      return cell;
    });
    section.querySelector("input").addEventListener("input", (event) => {
      this.#wanted = event.target.value.trim().toLowerCase();
      this.show();
    });
    this.sight = observer(this.#seen, () => this.#draw());
    parent.append(section);
  }

  // set gives a rule its state at a time: its title, the used share of its limit and the same in
  // words, and how many requests pass and are refused per second.
  set(name, at, { title = name, used, text, passed, refused }) {
    let rule = this.#rows.get(name);
    if (!rule) {
      rule = { name, history: [], row: this.#row(name) };
      this.#rows.set(name, rule);
      rule.row.rule = rule;
    }
    if (rule.title !== title) say(rule.row.querySelector("button"), title);
    Object.assign(rule, { title, used, text, passed, refused, at });
    rule.history.push([at, [passed, refused]]);
    while (rule.history[0][0] < at - past) rule.history.shift();
  }

  // now returns a rule's newest state.
  now = (name) => this.#rows.get(name);

  forget() {
    for (const rule of this.#rows.values()) rule.history = [];
  }

  #row(name) {
    const row = document.createElement("tr");
    row.innerHTML = `<th scope="row"><button type="button" aria-pressed="${name === this.chosen}"></button> <small></small></th><td></td><td></td><td></td><td><canvas role="img" width="${wide}" height="${high}"></canvas></td>`;
    columns.forEach(([head], i) => { row.cells[i].dataset.head = head; });
    row.gauge = gauge(row.cells[1]);
    row.querySelector("button").addEventListener("click", () => this.clicked(name === this.chosen ? undefined : name));
    this.sight.observe(row);
    return row;
  }

  // choose marks the chosen rule.
  choose(name) {
    this.chosen = name;
    for (const rule of this.#rows.values()) rule.row.querySelector("button").setAttribute("aria-pressed", rule.name === name);
    this.show();
  }

  // show updates the table.
  show() {
    const value = columns[this.#by][1];
    const sign = this.#down ? -1 : 1;
    const rules = [...this.#rows.values()].filter((rule) => rule.title.toLowerCase().includes(this.#wanted));
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    rules.sort((a, b) => (b.name === this.chosen) - (a.name === this.chosen) || sign * compare(value(a), value(b)) || compare(b.refused, a.refused) || compare(a.name, b.name));
    const now = [...this.body.rows];
    if (rules.length !== now.length || rules.some((rule, i) => rule.row !== now[i])) this.#order(rules.map((rule) => rule.row));
    this.heads.forEach((head, i) => {
      if (i === this.#by) head.setAttribute("aria-sort", this.#down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.body.closest(".scrolled").hidden = rules.length === 0;
    say(this.none, rules.length > 0 ? "" : this.#rows.size > 0 ? "No rule has this name." : "No rule has been seen.");
    this.#draw();
  }

  // order moves rows to their places. It leaves the others alone, and keeps the focus.
  #order(rows) {
    const focus = document.activeElement;
    const wanted = new Set(rows);
    for (const row of [...this.body.rows]) if (!wanted.has(row)) row.remove();
    rows.forEach((row, i) => {
      if (this.body.rows[i] !== row) this.body.insertBefore(row, this.body.rows[i] ?? null);
    });
    if (this.body.contains(focus)) focus.focus({ preventScroll: true });
  }

  #draw() {
    const colors = this.inks.map((ink) => getComputedStyle(ink).color); // of the theme in force
    for (const row of this.#seen) {
      const { rule } = row;
      row.gauge(rule.used, `${rule.title}: ${rule.text}`);
      say(row.querySelector("small"), rule.text);
      say(row.cells[2], pace(rule.passed));
      say(row.cells[3], pace(rule.refused));
      row.cells[3].classList.toggle("color-refused", rule.refused > 0);
      const canvas = row.querySelector("canvas");
      canvas.setAttribute("aria-label", `${rule.title}: ${rate(rule.passed)} passed, ${rate(rule.refused)} refused`);
      spark(canvas.getContext("2d"), rule, colors);
    }
  }
}

// spark draws how many requests passed and were refused in the last minute.
function spark(c, { history: points, at }, colors) {
  c.clearRect(0, 0, wide, high);
  c.lineWidth = 2;
  if (!points.some(([, values]) => Math.max(...values) > 0)) return;
  const top = Math.max(1, ...points.map(([, values]) => Math.max(...values)));
  colors.forEach((color, i) => {
    c.strokeStyle = color;
    c.beginPath();
    for (const [time, values] of points) c.lineTo(wide * (1 - (at - time) / past), high - 2 - ((high - 4) * values[i]) / top);
    c.stroke();
  });
}
