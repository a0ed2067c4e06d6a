import { byID, clock, count, draw, longest, pace, say, shape, shortest } from "./parts.js";

// The chart's margins, in pixels.
const left = 46;
const right = 10;
const top = 10;
const foot = 24;

// Flow is the chart of the requests that passed and, on top of them, those that were refused.
export class Flow {
  constructor() {
    this.section = byID("flow");
    this.picture = this.section.querySelector("svg");
    this.picture.onpointermove = (event) => this.pointed(event.offsetX);
    this.picture.onpointerleave = () => this.pointed(NaN);
    this.points = [];
  }

  // show draws points, of a time and how many requests passed and were refused a second.
  show(points, events, now) {
    Object.assign(this, { points, events, now });
    const busy = points.some(([, passed, refused]) => passed + refused > 0);
    byID("empty").hidden = busy;
    this.draw();
    const [, passed = 0, refused = 0] = points.at(-1) ?? [];
    this.picture.setAttribute("aria-label", `Requests a second: ${count(passed)} passed, ${count(refused)} refused`);
  }

  draw() {
    const { clientWidth: wide, clientHeight: high } = this.picture;
    if (wide === 0) return; // out of sight
    this.picture.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    const { points } = this;
    const end = Math.max(this.now ?? 0, points.at(-1)?.[0] ?? 0);
    const span = Math.min(longest, Math.max(shortest, end - (points[0]?.[0] ?? end)));
    const step = nice(Math.max(4, ...points.map(([, passed, refused]) => passed + refused)) / 4);
    const most = 4 * step;
    const x = (time) => left + (wide - left - right) * (1 - (end - time) / span);
    const y = (value) => top + (high - top - foot) * (1 - value / most);
    const parts = [];
    const ticks = [];
    const add = (name, attributes, text) => parts.push(shape(name, attributes, text));
    const tick = (text, axis, place) => {
      const label = document.createElement("i");
      label.dataset.text = text;
      label.className = axis;
      label.style[axis === "x" ? "left" : "top"] = `${place}%`;
      ticks.push(label);
    };
    for (let value = 0; value <= most; value += step) {
      add("line", { x1: left, x2: wide - right, y1: y(value), y2: y(value), class: "grid" });
      tick(count(value), "y", (100 * y(value)) / high);
    }
    const every = [5, 10, 30, 60].find((s) => span / 1000 / s <= Math.max(2, wide / 110)) ?? 60;
    for (let ago = 0; ago * 1000 <= span; ago += every) {
      tick(ago === 0 ? "now" : ago % 60 === 0 ? `−${ago / 60} min` : `−${ago} s`, "x", (100 * x(end - 1000 * ago)) / wide);
    }
    for (const { from, until = end, text } of this.events?.outages ?? []) {
      if (until < end - span) continue;
      const begin = Math.max(left, x(from));
      add("rect", { x: begin, y: top, width: Math.max(2, x(until) - begin), height: high - top - foot, class: "outage" }, `${clock(from)}: ${text}`);
    }
    const way = (of) => points.map((p) => `${x(p[0]).toFixed(1)},${y(of(p)).toFixed(1)}`);
    const area = (name, from, to) => add("polygon", { points: [...way(to), ...way(from).reverse()].join(" "), class: `area ${name}` });
    area("passed", () => 0, (p) => p[1]);
    area("refused", (p) => p[1], (p) => p[1] + p[2]);
    add("polyline", { points: way((p) => p[1]).join(" "), class: "passed" });
    for (const { at, text } of this.events?.marks ?? []) {
      if (at >= end - span) add("rect", { x: x(at) - 1, y: top, width: 2, height: high - top - foot, class: "event" }, `${clock(at)}: ${text}`);
    }
    if (this.at >= left) {
      const time = end - span * (1 - (this.at - left) / (wide - left - right));
      const point = points.findLast((p) => p[0] <= time);
      if (point) add("line", { x1: x(point[0]), x2: x(point[0]), y1: top, y2: high - foot, class: "cross" });
      say(this.section.querySelector(".point"), point ? `${clock(point[0])}: ${pace(point[1])} passed, ${pace(point[2])} refused` : "");
    } else say(this.section.querySelector(".point"), "");
    this.picture.replaceChildren(...parts);
    this.section.querySelector(".ticks").replaceChildren(...ticks);
  }

  pointed(at) {
    this.at = at;
    this.draw();
  }
}

// nice returns the least of 1, 2, 5, 10, 20 and so on that is not below a number.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].find((m) => m * power >= n) * power;
}

// Figures are numbers, each with its last minutes.
export class Figures {
  // heads are the names of the figures.
  constructor(heads) {
    byID("figures").replaceChildren();
    this.all = heads.map((head) => {
      const element = byID("figures").appendChild(document.createElement("div"));
      element.innerHTML = '<dt></dt><dd><b></b><svg class="spark" role="img" viewBox="0 0 1000 100" preserveAspectRatio="none"></svg></dd>';
      say(element.querySelector("dt"), head);
      return { element, head };
    });
  }

  // show shows figure i, of a name for its colour.
  show(i, text, points, name = "passed") {
    const { element, head } = this.all[i];
    say(element.querySelector("b"), text);
    const picture = element.querySelector("svg");
    draw(picture, [{ points, name, filled: true }]);
    picture.setAttribute("aria-label", `${head}: ${text}`);
  }
}

// ratio returns how much a series has grown for each that another has grown, as a series: over the
// time before each point, in milliseconds. Both have the same times. Where the other has not grown
// there is no point.
export function ratio(series, other, over = 10_000) {
  let from = 0;
  const out = [];
  series.points.forEach(([time, value], i) => {
    while (series.points[from][0] < time - over) from++;
    const grown = other.points[i][1] - other.points[from][1];
    if (grown > 0) out.push([time, (value - series.points[from][1]) / grown]);
  });
  return out;
}
