// Parts that the page's views are made of. Whatever a server says is text: nothing makes elements of
// it.
const svg = "http://www.w3.org/2000/svg";
export const byID = (id) => document.getElementById(id);

// card is a copy of a template's element.
export const card = (id) => byID(id).content.firstElementChild.cloneNode(true);

// say sets an element's text. One that is as it was is left alone, for those who hear it.
export function say(element, text) {
  if (element.textContent !== `${text}`) element.textContent = text;
}

export const count = (n) => Math.round(n).toLocaleString("en");
export const rate = (n) => `${n < 10 ? n.toFixed(1) : count(n)} a second`;
const units = [[86400000, "day"], [3600000, "hour"], [60000, "minute"], [1000, "second"]];

export function duration(milliseconds) {
  for (const [unit, name] of units) {
    if (milliseconds % unit === 0) {
      const n = milliseconds / unit;
      return n === 1 ? `1 ${name}` : `${n} ${name}s`;
    }
  }
  return `${milliseconds} ms`;
}

// What a picture shows at least and at most, in milliseconds.
const shortest = 15 * 1000;
const longest = 3 * 60 * 1000;

// Series keeps values for as long as pictures show them.
export class Series {
  points = []; // [time, value], oldest first

  add(time, value) {
    this.points.push([time, value]);
    while (this.points[0][0] < time - longest) this.points.shift();
  }

  get last() {
    return this.points.at(-1)?.[1] ?? 0;
  }

  // perSecond is the series of how fast this one grows, over some milliseconds.
  perSecond(over = 2000) {
    let from = 0;
    return this.points.map(([time, value]) => {
      while (this.points[from][0] < time - over) from++;
      const [then, before] = this.points[from];
      return [time, time > then ? (Math.max(0, value - before) * 1000) / (time - then) : 0];
    });
  }
}

// draw draws lines into an SVG of 1000 by 100, over the time that there is, or the end of it. level is
// where a dashed line is.
export function draw(picture, lines, level) {
  const end = Math.max(0, ...lines.map(({ points }) => points.at(-1)?.[0] ?? 0));
  const begin = Math.min(end, ...lines.map(({ points }) => points[0]?.[0] ?? end));
  const span = Math.min(longest, Math.max(shortest, end - begin));
  const top = 1.15 * Math.max(1, level ?? 0, ...lines.flatMap(({ points }) => points.map((p) => p[1])));
  const x = (time) => (1000 * (1 - (end - time) / span)).toFixed(1);
  const y = (value) => (98 - (96 * value) / top).toFixed(1);
  const parts = [];
  const add = (name, attributes) => {
    const part = document.createElementNS(svg, name);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    parts.push(part);
  };
  for (const { points, name, filled } of lines) {
    if (points.length === 0) continue;
    const way = points.map(([time, value]) => `${x(time)},${y(value)}`).join(" ");
    if (filled) add("polygon", { points: `${x(points[0][0])},98 ${way} 1000,98`, class: `area ${name}` });
    add("polyline", { points: way, class: name });
  }
  if (level !== undefined) add("line", { x1: 0, x2: 1000, y1: y(level), y2: y(level), class: "level" });
  picture.replaceChildren(...parts);
}

// Table is a table of texts.
export class Table {
  constructor(parent, title, heads) {
    const section = document.createElement("section");
    section.className = "lane";
    const table = section.appendChild(document.createElement("table"));
    table.createCaption().textContent = title;
    const row = table.createTHead().insertRow();
    for (const head of heads) {
      const cell = row.appendChild(document.createElement("th"));
      cell.scope = "col";
      cell.textContent = head;
    }
    this.body = table.createTBody();
    this.none = section.appendChild(document.createElement("p"));
    this.none.className = "hint";
    parent.append(section);
  }

  // show shows rows, the first cell of each being its name, or what to say without any.
  show(rows, none) {
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((texts, i) => {
      const row = this.body.rows[i] ?? this.body.insertRow();
      texts.forEach((text, j) => {
        let cell = row.cells[j];
        if (!cell) {
          cell = row.appendChild(document.createElement(j === 0 ? "th" : "td"));
          if (j === 0) cell.scope = "row";
        }
        say(cell, text);
      });
    });
    say(this.none, rows.length === 0 ? none : "");
  }
}

// keyName is a key as people may see it.
export function keyName(key) {
  if (!key.values) return key.hash;
  return key.values.map(({ text, cut }) => (cut ? `${text}…` : text)).join(" ");
}

// Rule shows what passed of a rule and what was refused.
export class Rule {
  constructor(parent, name) {
    this.element = card("rule");
    this.name = name;
    say(this.part("h3"), name);
    parent.append(this.element);
  }

  part(selector) {
    return this.element.querySelector(selector);
  }

  // show shows totals, if there are some, and rates over time.
  show(allowed, refused, totals) {
    const now = (points) => points.at(-1)?.[1] ?? 0;
    say(this.part("b.allowed"), totals ? count(totals.allowed) : rate(now(allowed)));
    say(this.part("b.refused"), totals ? count(totals.refused) : rate(now(refused)));
    say(this.part(".allowed-rate"), totals ? rate(now(allowed)) : "");
    say(this.part(".refused-rate"), totals ? rate(now(refused)) : "");
    const picture = this.part("svg");
    draw(picture, [{ points: allowed, name: "passed", filled: true }, { points: refused, name: "refused" }]);
    picture.setAttribute("aria-label", `${this.name}: ${rate(now(allowed))} passed, ${rate(now(refused))} refused`);
  }
}
