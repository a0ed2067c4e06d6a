import { byID, clock, count, draw, pace, range, recent, say, shape, shortest, within } from "./parts.js";

// The chart's margins, in pixels.
const left = 46;
const right = 10;
const top = 10;
const foot = 24;

// With refusals of more rules than these, the chart tells only those that refuse most apart.
const fewBands = 4;

// banded returns the rules whose refusals a chart tells apart, of pairs of a name and an amount.
export function banded(refusals) {
  const some = refusals.filter(([, amount]) => amount > 0).sort((a, b) => b[1] - a[1]);
  return some.slice(0, fewBands).map(([name]) => name).sort();
}

// Flow is the chart of the requests that passed and, on top of them, those that were refused, by
// rule. A rule that is clicked is the only one that it and everything below shows.
export class Flow {
  // choose is called with a rule's name, or with undefined for all.
  constructor(choose) {
    this.choose = choose;
    this.section = byID("flow");
    this.picture = this.section.querySelector(".plot svg");
    this.picture.onpointermove = (event) => this.pointed(event.offsetX);
    this.picture.onpointerleave = () => this.pointed(NaN);
    // The chart is drawn anew all the time, so a click has no target in it that stays.
    this.picture.onclick = ({ clientX, clientY }) => {
      const { rule } = document.elementFromPoint(clientX, clientY).dataset;
      if (rule) choose(rule);
    };
    byID("all-rules").onclick = () => {
      choose(undefined);
      byID("range").focus(); // as the button goes
    };
    byID("by").replaceChildren();
    byID("range").onchange = () => {
      range.ms = Number(byID("range").value) * 60_000;
      this.draw();
    };
    new ResizeObserver(() => this.draw()).observe(this.picture);
    this.points = [];
    this.rules = [];
  }

  // show draws points, of a time, how many requests passed and were refused a second, and how many of
  // these by each of the rules. chosen is the only rule that is shown, if any.
  show(points, rules, chosen, events, now) {
    Object.assign(this, { points, rules, events, now });
    const busy = points.some(([, passed, refused]) => passed + refused > 0);
    byID("empty").hidden = busy;
    this.draw();
    const [, passed = 0, refused = 0] = points.at(-1) ?? [];
    this.picture.setAttribute("aria-label", `Requests a second: ${count(passed)} passed, ${count(refused)} refused`);
    say(byID("flow-title"), chosen === undefined ? "Requests a second" : `Requests a second: ${chosen}`);
    byID("all-rules").hidden = chosen === undefined;
    const list = byID("by");
    const apart = rules.length > 1 ? rules : []; // a single one refuses all that the chart has
    while (list.children.length > apart.length) list.lastChild.remove();
    apart.forEach((rule, i) => {
      const button = list.children[i] ?? list.appendChild(document.createElement("button"));
      if (!button.firstChild) button.append(shape("svg", { class: `mark band-${i}` }), document.createElement("span"));
      button.type = "button";
      button.onclick = () => this.choose(rule);
      say(button.lastChild, rule);
    });
  }

  draw() {
    const { clientWidth: wide, clientHeight: high } = this.picture;
    if (wide === 0) return; // out of sight
    this.picture.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    const end = Math.max(this.now ?? 0, this.points.at(-1)?.[0] ?? 0);
    const span = Math.min(range.ms, Math.max(shortest, end - (this.points[0]?.[0] ?? end)));
    const points = within(this.points, end - span);
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
      label.style[axis !== "y" ? "left" : "top"] = `${place}%`;
      ticks.push(label);
    };
    for (let value = 0; value <= most; value += step) {
      add("line", { x1: left, x2: wide - right, y1: y(value), y2: y(value), class: "grid" });
      tick(count(value), "y", (100 * y(value)) / high);
    }
    const now = byID("stands").dataset.level === "dead" ? clock(end) : "now";
    const every = [5, 10, 30, 60, 300].find((s) => span / 1000 / s <= Math.max(2, wide / 110)) ?? 600;
    for (let ago = 0; ago * 1000 <= span; ago += every) {
      tick(ago === 0 ? now : ago % 60 === 0 ? `−${ago / 60} min` : `−${ago} s`, ago === 0 ? "x now" : "x", (100 * x(end - 1000 * ago)) / wide);
    }
    const way = (of) => points.map((p) => `${x(p[0]).toFixed(1)},${y(of(p)).toFixed(1)}`);
    const area = (name, from, to, more) => add("polygon", { points: [...way(to), ...way(from).reverse()].join(" "), class: `area ${name}`, ...more });
    area("passed", () => 0, (p) => p[1]);
    area("refused", (p) => p[1], (p) => p[1] + p[2]);
    // Several rules may refuse the same request, and counts are not read at the same moment: rules
    // together are drawn as high as all refusals, unless there are more rules.
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    const upTo = (p, i) => {
      const all = sum(p.slice(3));
      return p[1] + (p[2] * sum(p.slice(3, 3 + i))) / Math.max(all, this.rules.length < fewBands ? 1e-9 : p[2], 1e-9);
    };
    this.rules.forEach((rule, i) => {
      area(`refused band-${i}`, (p) => upTo(p, i), (p) => upTo(p, i + 1), { "data-rule": rule });
    });
    add("polyline", { points: way((p) => p[1]).join(" "), class: "passed" });
    for (const { from, until = end, text } of this.events?.outages ?? []) {
      if (until < end - span) continue;
      const begin = Math.max(left, x(from));
      add("rect", { x: begin, y: top, width: Math.max(2, x(until) - begin), height: high - top - foot, class: "outage" }, `${clock(from)}: ${text}`);
    }
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

// nice returns the least of 1, 2, 3, 4, 5, 10, 20 and so on that is not below a number.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 3, 4, 5, 10].find((m) => m * power >= n) * power;
}

// Figures are numbers, each with its last minutes.
export class Figures {
  // heads are the names of the figures.
  constructor(heads) {
    byID("figures").replaceChildren();
    this.all = heads.map((head) => {
      const element = byID("figures").appendChild(document.createElement("div"));
      element.className = "card";
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
    draw(picture, points.some(([, value]) => value > 0) ? [{ points, name, filled: true }] : []);
    picture.setAttribute("aria-label", `${head}: ${text}`);
  }
}

// ratio returns how much a series has grown for each that another has grown of late, as a series. Both have the same
// times. Where the other has not grown there is no point.
export function ratio(series, other) {
  let from = 0;
  const out = [];
  series.points.forEach(([time, value], i) => {
    while (series.points[from + 1]?.[0] <= time - recent) from++;
    const grown = other.points[i][1] - other.points[from][1];
    if (grown > 0) out.push([time, (value - series.points[from][1]) / grown]);
  });
  return out;
}
