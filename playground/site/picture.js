import { second, span, subBuckets } from "./world.js";

// Besides the past, a picture shows some of the future: where windows end.
const ahead = 0.6;

// Places of the picture that is drawn, in CSS pixels from the top: a higher one has a higher chart.
const chart = { top: 10, height: 0 };
const counter = { top: 0, height: 44 };
const requests = { top: 0, height: 28 };

function place(height) {
  chart.height = height - 126;
  counter.top = height - 98;
  requests.top = height - 40;
}

const gauge = { width: 30, gap: 18 };

const plain = "12px Inter, system-ui, sans-serif";

const colorNames = ["ink", "soft", "rule", "passed", "passed-soft", "refused", "refused-soft", "card"];

// palette reads the colours of the current theme.
export function palette() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const colors = {};
  for (const name of colorNames) {
    probe.className = `color-${name}`;
    colors[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colors;
}

// Picture draws a lane.
export class Picture {
  #canvas;
  #context;
  #kind;
  #width = 0;
  #height = 0;

  constructor(canvas, kind) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#kind = kind;
    new ResizeObserver(() => this.#fit()).observe(canvas);
    this.#fit();
  }

  // resized is called when the picture has to be drawn again.
  resized = () => {};

  #fit() {
    const { clientWidth, clientHeight } = this.#canvas;
    const scale = devicePixelRatio;
    const width = Math.round(clientWidth * scale);
    const height = Math.round(clientHeight * scale);
    if (this.#canvas.width === width && this.#canvas.height === height) return;
    this.#width = clientWidth;
    this.#height = clientHeight;
    this.#canvas.width = width;
    this.#canvas.height = height;
    this.#context.setTransform(scale, 0, 0, scale, 0, 0);
    this.resized();
  }

  // draw draws the state of the lane of a number, which is in view.
  draw(world, number, view, colors) {
    const c = this.#context;
    const lane = world.lanes[number];
    const width = this.#width - gauge.width - gauge.gap;
    if (width < 50) return;
    place(this.#height);
    const scale = width / (span + ahead) / world.window;
    const now = span * world.window * scale;
    const scene = {
      c, colors, world, lane, view, width, now,
      x: (at) => now + (at - world.now) * scale,
      from: world.now - span * world.window,
      until: world.now + ahead * world.window,
    };
    c.clearRect(0, 0, this.#width, this.#height);
    c.font = plain;
    c.textBaseline = "alphabetic";
    c.lineWidth = 1;
    c.save();
    c.beginPath();
    c.rect(0, 0, width, this.#height);
    c.clip();
    marks(scene, this.#height);
    drawChart(scene);
    counters[this.#kind](scene);
    drawRequests(scene, number);
    c.restore();
    line(c, colors.ink, now, chart.top - 6, now, requests.top + requests.height);
    drawGauge(scene, this.#width - gauge.width, this.#kind === "tokens");
  }
}

function line(c, color, x1, y1, x2, y2) {
  c.strokeStyle = color;
  c.beginPath();
  c.moveTo(x1, y1);
  c.lineTo(x2, y2);
  c.stroke();
}

function box(c, color, x, y, width, height, radius = 2) {
  if (width <= 0 || height <= 0) return;
  c.fillStyle = color;
  c.beginPath();
  c.roundRect(x, y, width, height, Math.min(radius, width / 2, height / 2));
  c.fill();
}

// say writes a text that may overlap lines.
function say({ c, colors, width }, text, x, y, { align = "left", color = colors.soft } = {}) {
  const size = c.measureText(text).width;
  let left = align === "right" ? x - size : align === "center" ? x - size / 2 : x;
  left = Math.max(0, Math.min(left, width - size));
  c.fillStyle = colors.card;
  c.globalAlpha = 0.8;
  c.fillRect(left - 3, y - 10, size + 6, 13);
  c.globalAlpha = 1;
  c.fillStyle = color;
  c.fillText(text, left, y);
}

// marks are the multiples of the window, which all clocks have in common.
function marks({ c, colors, world, width, x, from, until }, height) {
  c.fillStyle = colors.soft;
  for (let i = Math.max(0, Math.ceil(from / world.window)); i * world.window <= until; i++) {
    const at = Math.round(x(i * world.window)) + 0.5;
    line(c, colors.rule, at, chart.top, at, requests.top + requests.height);
    const label = `${(i * world.window) / second} s`;
    if (at + 4 + c.measureText(label).width < width) c.fillText(label, at + 4, height - 2);
  }
}

// drawChart draws, for each time, how many requests have passed in the window that ends then,
// against the limit.
function drawChart({ c, colors, world, lane, width, now, x }) {
  const bottom = chart.top + chart.height;
  const unit = chart.height / Math.max(1.3 * world.limit, 1.08 * world.most);
  const step = [[0, bottom]];
  let first = 0; // the first that is still in the window
  let last = 0; // the first that is still to come
  const { times } = lane;
  const to = (at, hits) => {
    const px = Math.max(0, x(at));
    step.push([px, step.at(-1)[1]], [px, bottom - hits * unit]);
  };
  while (first < times.length) {
    const leaves = times[first] + lane.reach;
    if (times[last] === leaves) {
      first++;
      last++;
    } else if (last < times.length && times[last] < leaves) {
      last++;
      to(times[last - 1], last - first);
    } else if (leaves <= world.now) {
      first++;
      to(leaves, last - first);
    } else break;
  }
  step.push([now, step.at(-1)[1]]);

  const limit = Math.round(bottom - world.limit * unit) + 0.5;
  const clipped = (clipTop, clipHeight, paint) => {
    c.save();
    c.beginPath();
    c.rect(0, clipTop, width, clipHeight);
    c.clip();
    c.beginPath();
    for (const [px, py] of step) c.lineTo(px, py);
    paint();
    c.restore();
  };
  const area = (color, clipTop, clipHeight) => clipped(clipTop, clipHeight, () => {
    c.fillStyle = color;
    c.lineTo(now, bottom);
    c.lineTo(0, bottom);
    c.fill();
  });
  area(colors["passed-soft"], limit, bottom - limit);
  area(colors["refused-soft"], 0, limit);
  const curve = (color, clipTop, clipHeight) => clipped(clipTop, clipHeight, () => {
    c.strokeStyle = color;
    c.lineWidth = 1.5;
    c.stroke();
  });
  // At the limit, the line has its full thickness.
  curve(colors.passed, limit - 2, bottom - limit + 4);
  curve(colors.refused, 0, limit - 2);
  c.setLineDash([4, 3]);
  line(c, colors.soft, 0, limit, width, limit);
  c.setLineDash([]);
  line(c, colors.rule, 0, bottom + 0.5, width, bottom + 0.5);
  c.fillStyle = colors.soft;
  c.fillText(`limit ${world.limit}`, 2, limit - 4);
  const passed = last - first;
  c.font = "600 12px Inter, system-ui, sans-serif";
  say({ c, colors, width }, `${passed}`, now + 7, step.at(-1)[1] + 4, { color: passed > world.limit ? colors.refused : colors.passed });
  c.font = plain;
}

// drawRequests draws requests that passed upwards and refused requests downwards. Waiting requests
// are paler.
function drawRequests({ c, colors, world, width, x }, number) {
  const middle = requests.top + 16;
  line(c, colors.rule, 0, middle + 0.5, width, middle + 0.5);
  const bit = 1 << number;
  const become = (request) => (request.passed & bit ? "passed" : request.waits & bit ? "passed-soft" : "refused");
  for (const color of ["refused", "passed-soft", "passed"]) {
    c.fillStyle = colors[color];
    c.beginPath();
    for (const request of world.requests) {
      const px = x(request.at);
      if (px < -2 || become(request) !== color) continue;
      if (color === "refused") c.rect(px - 1, middle + 3, 2, 8);
      else c.rect(px - 1, middle - 13, 2, 12);
    }
    c.fill();
  }
}

// band shades the last window.
function band({ c, colors, world, now, x }, from = world.now - world.window) {
  const left = x(from);
  c.globalAlpha = 0.35;
  box(c, colors["passed-soft"], left, counter.top - 6, now - left, counter.height + 12, 4);
  c.globalAlpha = 1;
}

const level = (hits, limit) => Math.min(1, hits / limit) * counter.height;
const floor = () => counter.top + counter.height;

// columns draws windows with counts of their own. alive reports whether a window counts now.
function columns(scene, alive) {
  const { c, colors, world, lane, x } = scene;
  for (const { start, hits } of lane.windows) {
    const left = x(start);
    const right = x(start + world.window);
    const high = level(hits, world.limit);
    const counts = alive(start);
    c.globalAlpha = counts ? 1 : 0.45;
    box(c, colors["passed-soft"], left + 1, floor() - high, right - left - 2, high, 3);
    outline(scene, start, counts ? colors.passed : colors.rule);
    c.globalAlpha = 1;
  }
}

// outline draws a window without its hits.
function outline({ c, colors, world, x }, start, color = colors.passed) {
  c.strokeStyle = color;
  c.beginPath();
  c.roundRect(x(start) + 1.5, counter.top + 0.5, x(start + world.window) - x(start) - 3, counter.height - 1, 4);
  c.stroke();
}

function counts(scene, begin, text) {
  say(scene, text, scene.x(begin + scene.world.window / 2), counter.top + counter.height / 2 + 4, { align: "center", color: scene.colors.ink });
}

function windows(scene) {
  const { world, view } = scene;
  const begin = world.now - view.age;
  columns(scene, (start) => start === begin);
  if (view.age < 0) {
    say(scene, "no window is open", scene.now - 8, floor() - 6, { align: "right" });
    return;
  }
  outline(scene, begin);
  counts(scene, begin, `${view.current} of ${view.quota}`);
}

const counters = {
  windows,

  weighted(scene) {
    const { c, colors, world, lane, view, x } = scene;
    const begin = world.now - view.age;
    band(scene);
    columns(scene, (start) => start === begin);
    outline(scene, begin);
    const before = lane.windows.findLast((w) => w.start + world.window === begin);
    if (before && view.previous > 0) {
      // Only the part that the last window still covers counts.
      const left = x(world.now - world.window);
      const high = level(before.hits, world.limit);
      c.globalAlpha = 0.55;
      box(c, colors.passed, left, floor() - high, x(begin) - left - 1, high, 3);
      c.globalAlpha = 1;
    }
    counts(scene, begin, `${view.previous} × ${Math.round((1 - view.age / world.window) * 100)} % + ${view.current}`);
  },

  buckets(scene) {
    const { c, colors, world, lane, view, x } = scene;
    const width = world.window / subBuckets;
    const begin = (Math.floor(world.now / width) + 1 - subBuckets) * width;
    band(scene, begin);
    // Buckets that no longer count are built from the times that passed.
    const gone = new Map();
    for (const at of lane.times) {
      if (at >= begin) break;
      const number = Math.floor(at / width);
      gone.set(number, (gone.get(number) ?? 0) + 1);
    }
    const bar = (start, hits, color) => {
      const high = Math.max(2, level(hits, world.limit));
      box(c, color, x(start) + 1, floor() - high, x(start + width) - x(start) - 2, high);
    };
    for (const [number, hits] of gone) bar(number * width, hits, colors.rule);
    for (const { age, hits } of view.buckets) bar(world.now - age, hits, colors.passed);
    for (let i = 0; i <= subBuckets; i++) {
      const px = x(begin + i * width);
      line(c, colors.rule, px, floor() + 1, px, floor() + 4);
    }
  },

  log(scene) {
    const { c, colors, world, lane, view, x } = scene;
    band(scene);
    const strokes = (ages, color, top) => {
      c.fillStyle = color;
      c.beginPath();
      for (const age of ages) c.rect(x(world.now - age) - 1, top, 2, floor() - top);
      c.fill();
    };
    const gone = lane.times.filter((at) => at <= world.now - world.window).map((at) => world.now - at);
    strokes(gone, colors.rule, counter.top + 26);
    strokes(view.buckets.map((b) => b.age), colors.passed, counter.top + 8);
    const oldest = view.buckets[0];
    if (oldest) {
      const px = x(world.now - oldest.age);
      c.fillStyle = colors.passed;
      c.beginPath();
      c.arc(px, counter.top + 8, 3.5, 0, 2 * Math.PI);
      c.fill();
      const wait = (world.window - oldest.age) / second;
      say(scene, `leaves in ${wait.toFixed(1)} s`, px + 8, counter.top + 10);
    }
  },

  // Places are taken in turn: each bar is a request, for as long as it lasts.
  flight({ c, colors, world, lane, x }) {
    const each = counter.height / world.limit;
    const before = lane.passed - lane.times.length;
    lane.times.forEach((at, i) => {
      const there = at + lane.reach > world.now;
      const top = floor() - (((before + i) % world.limit) + 1) * each;
      box(c, there ? colors.passed : colors["passed-soft"], x(at), top, x(at + lane.reach) - x(at) - 1, Math.max(each - 1, 0.8), 1);
    });
  },

  // The line grows with each request that joins the queue, and shrinks with each that leaves it.
  queue(scene) {
    const { c, colors, world, lane, view, now, x } = scene;
    const steps = lane.queued.flatMap(({ at, until }) => [[at, 1], [until, -1]]).filter(([at]) => at <= world.now).sort((a, b) => a[0] - b[0]);
    let waiting = 0;
    c.beginPath();
    c.moveTo(x(scene.from), floor());
    for (const [at, more] of steps) {
      c.lineTo(x(at), floor() - level(waiting, world.limit));
      waiting += more;
      c.lineTo(x(at), floor() - level(waiting, world.limit));
    }
    c.lineTo(now, floor() - level(waiting, world.limit));
    c.lineTo(now, floor());
    c.fillStyle = colors["passed-soft"];
    c.fill();
    c.strokeStyle = colors.passed;
    c.stroke();
    if (view.used > 0) say(scene, `${view.used} wait, the next for ${(view.next / second).toFixed(1)} s`, now - 6, counter.top - 5, { align: "right" });
  },

  tokens(scene) {
    const { c, colors, world, lane, view, now, x } = scene;
    const each = world.window / world.limit;
    c.beginPath();
    const start = x(Math.max(0, scene.from));
    let left = view.quota;
    c.moveTo(start, floor());
    c.lineTo(start, floor() - level(left, view.quota));
    const to = (time, tokens) => {
      c.lineTo(x(time), floor() - level(left, view.quota));
      left = tokens;
      c.lineTo(x(time), floor() - level(left, view.quota));
    };
    // Between two hits, tokens come back one by one.
    const drip = (from, until) => {
      for (let back = from; left < view.quota && back <= until; back += each) to(back, left + 1);
    };
    let due = Infinity;
    for (const l of lane.levels) {
      drip(due, l.at);
      to(l.at, l.left);
      due = l.at + l.next;
    }
    drip(due, world.now);
    c.lineTo(now, floor() - level(left, view.quota));
    c.lineTo(now, floor());
    c.fillStyle = colors["passed-soft"];
    c.fill();
    c.strokeStyle = colors.passed;
    c.stroke();
    if (view.remaining < view.quota) {
      say(scene, `a token in ${(view.next / second).toFixed(1)} s`, now - 6, counter.top - 5, { align: "right" });
    }
  },
};

// drawGauge draws the rest of the quota. With drips, tokens drip into it.
function drawGauge({ c, colors, view, world }, left, drips) {
  const top = chart.top;
  const bottom = floor();
  const height = bottom - top;
  const cells = view.quota <= 25 ? view.quota : 1;
  const each = height / cells;
  for (let i = 0; i < cells; i++) {
    const y = bottom - (i + 1) * each;
    const full = cells === 1 ? 0 : i < view.remaining;
    box(c, full ? colors.passed : colors.rule, left, y + 1, gauge.width, each - 2, 3);
  }
  if (cells === 1) {
    const high = (height * view.remaining) / Math.max(1, view.quota);
    box(c, colors.passed, left, bottom - high, gauge.width, high, 3);
  }
  if (drips && view.remaining < view.quota) {
    // The next token grows at the top, and falls onto those that are there.
    const done = 1 - view.next / (world.window / world.limit);
    const surface = bottom - (height * view.remaining) / view.quota;
    const fall = Math.max(0, (done - 0.7) / 0.3);
    const y = top - 7 + (surface - top + 2) * fall * fall;
    c.fillStyle = colors.passed;
    c.strokeStyle = colors.card;
    c.lineWidth = 2;
    c.beginPath();
    c.arc(left + gauge.width / 2, y, 2 + 3.5 * Math.min(1, done / 0.7), 0, 2 * Math.PI);
    c.stroke();
    c.fill();
    c.lineWidth = 1;
  }
  c.fillStyle = colors.ink;
  c.font = "600 16px Inter, system-ui, sans-serif";
  c.textAlign = "center";
  c.fillText(`${view.remaining}`, left + gauge.width / 2, bottom + 20);
  c.font = plain;
  c.fillStyle = colors.soft;
  c.fillText("left", left + gauge.width / 2, bottom + 34);
  c.textAlign = "left";
}
