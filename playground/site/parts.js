// Parts of the page's views. All texts of a server are shown as text: nothing makes elements of
// them.
const svg = "http://www.w3.org/2000/svg";
export const byID = (id) => document.getElementById(id);

// card returns a copy of a template's element.
export const card = (id) => byID(id).content.firstElementChild.cloneNode(true);

// say sets an element's text. It leaves an equal text alone, for those who hear the page.
export function say(element, text) {
  if (element.textContent !== `${text}`) element.textContent = text;
}

// copy copies a text, and says in an element what became of that.
export async function copy(text, status) {
  try {
    await navigator.clipboard.writeText(text);
    status.textContent = "Copied.";
  } catch {
    status.textContent = "The browser does not let the page copy.";
  }
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (n) => whole.format(Math.round(n));
export const pace = (n) => (n < 9.95 ? n.toFixed(1) : count(n));
export const rate = (n) => `${pace(n)} a second`;
export const percent = (part) => (part > 0 && part < 0.005 ? "< 1 %" : `${(100 * part).toFixed(part > 0.995 && part < 1 ? 1 : 0)} %`);
const counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
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

// The shortest and the longest time that a picture shows, and the one that people have chosen, in
// milliseconds.
export const shortest = 15 * 1000;
const longest = 60 * 60 * 1000;
export const range = { ms: 5 * 60 * 1000 };
// The time that all rates are of, in milliseconds: reports of proxies cover about as much.
export const recent = 10_000;
// Refusals that rest for no longer than this go on, in milliseconds.
const rest = 30_000;
// Points older than fine are kept only if they are coarse apart: servers keep no others.
const fine = 5 * 60 * 1000;
const coarse = 9 * 1000; // theirs are 10 s apart, and some come a moment early

// Series keeps values for as long as pictures show them.
export class Series {
  points = []; // [time, value], oldest first
  #old = 0; // how many of them are coarse

  add(time, value) {
    const { points } = this;
    points.push([time, value]);
    while (points[0][0] < time - longest) {
      points.shift();
      this.#old = Math.max(0, this.#old - 1);
    }
    while (points[this.#old][0] < time - fine) {
      if (this.#old > 0 && points[this.#old][0] - points[this.#old - 1][0] < coarse) points.splice(this.#old, 1);
      else this.#old++;
    }
  }

  get last() {
    return this.points.at(-1)?.[1] ?? 0;
  }

  // pace is how fast this series grows now.
  get pace() {
    return this.perSecond(this.points.slice(-30)).at(-1)?.[1] ?? 0;
  }

  // perSecond returns how fast this series grows, as a series.
  perSecond(points = this.points) {
    let from = 0;
    return points.map(([time, value]) => {
      while (points[from + 1]?.[0] <= time - recent) from++;
      const [then, before] = points[from];
      return [time, time > then ? (Math.max(0, value - before) * 1000) / (time - then) : 0];
    });
  }
}

// Events are marks for all pictures, and the times of outages.
export class Events {
  marks = []; // {at, text}, oldest first
  outages = []; // {from, until, text}; the last may have no end

  mark(at, text) {
    this.marks.push({ at, text });
    while (this.marks[0].at < at - longest) this.marks.shift();
  }

  // outage begins or ends an outage: text says what is out of order, or is empty.
  outage(at, text) {
    const last = this.outages.at(-1);
    const running = last && last.until === undefined;
    if (running && last.text === text) return;
    if (running) last.until = at;
    if (text) this.outages.push({ from: at, text });
    while (this.outages[0]?.until < at - longest) this.outages.shift();
  }
}

export const clock = (at) => new Date(at).toLocaleTimeString();

// since says when values above 0 have begun that still come.
export function since(points) {
  let first;
  for (let i = points.length - 1; i >= 0 && (first === undefined || points[first][0] - points[i][0] <= rest); i--) if (points[i][1] > 0) first = i;
  if (first === undefined) return "";
  return ` since ${clock(points[first][0])}${first <= 1 ? " or earlier" : ""}`;
}

// shape returns an element of an SVG. Its text is that of a text, or what the pointer tells.
export function shape(name, attributes, text) {
  const element = document.createElementNS(svg, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) (name === "text" ? element : element.appendChild(document.createElementNS(svg, "title"))).textContent = text;
  return element;
}

// gauge puts a bar into an element, and returns a function that shows a share of a limit there, and
// names it. Without a share there is no bar.
export function gauge(parent) {
  const bar = parent.appendChild(document.createElement("span"));
  bar.className = "gauge";
  bar.setAttribute("role", "meter");
  const filled = bar.appendChild(document.createElement("i"));
  return (share, label) => {
    bar.hidden = share === undefined;
    if (bar.hidden) return;
    const percent = Math.round(100 * Math.min(1, share));
    filled.style.width = `${percent}%`;
    filled.className = share >= 1 ? "full" : "";
    bar.setAttribute("aria-valuenow", percent);
    bar.setAttribute("aria-label", label);
  };
}

// observer keeps those of the elements that it observes in a set which are in sight, and calls changed after each change.
export const observer = (seen, changed) => new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target);
    else seen.delete(target);
  }
  changed();
});

// within returns the points from a time on, and the one before it.
export const within = (points, begin) => points.slice(Math.max(0, points.findIndex(([time]) => time >= begin) - 1));

// draw draws lines into an SVG of 1000 by 100, over all of their time or the end of it. level is
// the height of a dashed line. now is the present, unless that is the newest point. It returns the
// times at which the picture begins and ends, and the value at its top.
export function draw(picture, lines, level, now = 0, events = undefined) {
  const end = Math.max(now, ...lines.map(({ points }) => points.at(-1)?.[0] ?? 0));
  const begin = Math.min(end, ...lines.map(({ points }) => points[0]?.[0] ?? end));
  const span = Math.min(range.ms, Math.max(shortest, end - begin));
  lines = lines.map((line) => ({ ...line, points: within(line.points, end - span) }));
  const top = 1.15 * Math.max(1, level ?? 0, ...lines.flatMap(({ points }) => points.map((p) => p[1])));
  const x = (time) => (1000 * (1 - (end - time) / span)).toFixed(1);
  const y = (value) => (98 - (96 * value) / top).toFixed(1);
  const parts = [];
  const add = (name, attributes, text) => parts.push(shape(name, attributes, text));
  for (const { points, name, filled } of lines) {
    if (points.length === 0) continue;
    const way = points.map(([time, value]) => `${x(time)},${y(value)}`).join(" ");
    if (filled) add("polygon", { points: `${x(points[0][0])},98 ${way} ${x(points.at(-1)[0])},98`, class: `area ${name}` });
    add("polyline", { points: way, class: name });
  }
  if (level !== undefined) add("line", { x1: 0, x2: 1000, y1: y(level), y2: y(level), class: "level" });
  for (const { from, until = end, text } of events?.outages ?? []) {
    if (until < end - span) continue;
    const left = Math.max(0, x(from));
    add("rect", { x: left, y: 0, width: Math.max(2, x(until) - left), height: 100, class: "outage" }, `${clock(from)}: ${text}`);
    parts.unshift(parts.pop()); // below the lines
  }
  for (const { at, text } of events?.marks ?? []) {
    if (at >= end - span) add("rect", { x: x(at) - 2, y: 0, width: 4, height: 100, class: "event" }, `${clock(at)}: ${text}`);
  }
  picture.replaceChildren(...parts);
  return { begin: end - span, end, top };
}

// total sums up values over time, in milliseconds: the older ones lie further apart. value returns that of a point.
export const total = (points, value) => points.reduce((sum, point, i) => sum + (i > 0 ? value(point) * (point[0] - points[i - 1][0]) : 0), 0);

// average returns the mean of a line's points.
function average(points) {
  return points.length < 2 ? points[0]?.[1] ?? 0 : total(points, ([, value]) => value) / (points.at(-1)[0] - points[0][0]);
}

// Curve shows the used part of a limit over time. With within, a value above the limit is marked.
export class Curve {
  constructor(parent, title, hint, within = true) {
    this.within = within;
    this.element = card("curve");
    this.title = title;
    say(this.part("h2"), title);
    say(this.part(".hint"), hint);
    this.used = new Series();
    const picture = this.part("svg");
    picture.addEventListener("pointermove", (event) => this.pointed(event.offsetX / picture.clientWidth));
    picture.addEventListener("pointerleave", () => this.pointed(NaN));
    parent.append(this.element);
  }

  part(selector) {
    return this.element.querySelector(selector);
  }

  // show draws the used hits against the limit, and shows the text.
  show(limit, text, now, events) {
    say(this.part(".status"), text);
    this.part(".status").classList.toggle("refused", this.within && this.used.last > limit);
    const picture = this.part("svg");
    const { begin, end, top } = draw(picture, [{ points: this.used.points, name: "passed", filled: true }], limit, now, events);
    picture.setAttribute("aria-label", `${this.title}: ${text}`);
    this.scale = (share) => begin + share * (end - begin);
    const shown = this.used.points.filter(([time]) => time >= begin);
    const seconds = Math.round((end - begin) / 1000);
    const span = seconds >= 120 ? `${Math.round(seconds / 60)} minutes` : `${seconds} s`;
    say(this.part(".from"), end > 0 ? clock(begin) : "");
    say(this.part(".until"), end > 0 ? `${clock(end)}, now` : "");
    say(this.part(".mean"), end > 0 ? `0 to ${count(top)}; mean of the last ${span}: ${count(average(shown))}` : "");
  }

  // pointed shows the value at a pointer, whose place is a share of the picture's width.
  pointed(share) {
    const at = this.scale?.(share);
    const point = at && this.used.points.findLast(([time]) => time <= at);
    say(this.part(".point"), point ? `${clock(point[0])}: ${count(point[1])}` : "");
  }
}

// Table is a table of texts, and of shares as bars.
export class Table {
  constructor(parent, title, heads) {
    const section = document.createElement("section");
    section.className = "card lane table";
    this.header = section.appendChild(document.createElement("header"));
    this.header.appendChild(document.createElement("h2")).textContent = title;
    this.heads = heads;
    this.table = section.appendChild(document.createElement("table"));
    this.table.setAttribute("aria-label", title);
    const row = this.table.createTHead().insertRow();
    for (const head of heads) {
      const cell = row.appendChild(document.createElement("th"));
      cell.scope = "col";
      cell.textContent = head;
    }
    this.body = this.table.createTBody();
    this.none = section.appendChild(document.createElement("p"));
    this.none.className = "hint";
    parent.append(section);
  }

  // show shows rows, whose first cells are their names, or else the text none; more is told of rows
  // that are not shown. If names can be chosen, chosen gets the row's number.
  show(rows, none, more, chosen = undefined) {
    this.chosen = chosen;
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((texts, i) => {
      const row = this.body.rows[i] ?? this.body.insertRow();
      texts.forEach((text, j) => {
        let cell = row.cells[j];
        if (!cell) {
          cell = row.appendChild(document.createElement(j === 0 ? "th" : "td"));
          cell.dataset.head = this.heads[j];
          if (j === 0) cell.scope = "row";
          if (j === 0 && chosen) {
            const button = cell.appendChild(document.createElement("button"));
            button.type = "button";
            button.addEventListener("click", () => this.chosen(i));
          }
        }
        if (typeof text === "number") (cell.gauge ??= gauge(cell))(text, `${texts[0]}: ${Math.round(100 * text)} % of the limit used`);
        else say(j === 0 && chosen ? cell.firstChild : cell, text);
      });
    });
    this.table.hidden = rows.length === 0;
    say(this.none, rows.length === 0 ? none : more);
  }
}

// keyName returns a key as people may see it.
export function keyName(key) {
  if (!key.values) return key.hash;
  return key.values.map(({ text, cut }) => (cut ? `${text}…` : text)).join(" ");
}

// The largest limit, window.MaxLimit.
const maxLimit = 999_999_999_999_999;

// Inputs are for a part of a key, or for the number of a limit.
const keyPart = { type: "text", spellcheck: false, autocapitalize: "none" };
export const limitNumber = { type: "number", min: 0, max: maxLimit, step: 1, required: true };

// putFields puts an input for each of some names into an element.
export function putFields(parent, names, values, kind = keyPart) {
  parent.replaceChildren(...names.map((name, i) => {
    const field = document.createElement("div");
    field.className = "field";
    const label = field.appendChild(document.createElement("label"));
    const input = field.appendChild(document.createElement("input"));
    Object.assign(input, { ...kind, id: `${parent.id}-${i}`, value: values[i] ?? "" });
    label.htmlFor = input.id;
    label.textContent = name;
    return field;
  }));
}

// ruleName returns a rule's name with its mode.
export const ruleName = (name, shadow) => (shadow ? `${name} (shadow)` : name);

// Rule shows how many requests of a rule passed and were refused.
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

  // show shows totals, if there are any, rates over time, and the held hits, if they are known.
  show(allowed, refused, totals, held) {
    const now = (points) => points.at(-1)?.[1] ?? 0;
    say(this.part("b.allowed"), totals ? count(totals.allowed) : rate(now(allowed)));
    say(this.part("b.refused"), totals ? count(totals.refused) : rate(now(refused)));
    say(this.part(".allowed-rate"), totals ? rate(now(allowed)) : "");
    say(this.part(".refused-rate"), totals ? rate(now(refused)) : "");
    this.part(".held").hidden = !held;
    if (held) say(this.part(".held"), `${counted(held.free, "free hit")} in ${counted(held.leases, "lease")}`);
    const picture = this.part("svg");
    draw(picture, [{ points: allowed, name: "passed", filled: true }, { points: refused, name: "refused" }]);
    picture.setAttribute("aria-label", `${this.name}: ${rate(now(allowed))} passed, ${rate(now(refused))} refused`);
  }
}
