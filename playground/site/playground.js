import { mostRate, query, settings } from "./address.js";
import { lanes, ruleOf, verdict } from "./lanes.js";
import { Pair } from "./pair.js";
import { byID, card, copy } from "./parts.js";
import { palette, Picture } from "./picture.js";
import { presets } from "./presets.js";
import { second, World } from "./world.js";

// The time between two updates of words, in milliseconds: people can't read faster.
const wordsEvery = 150;
const spokenEvery = 6000;
// The same for pictures, if the visitor prefers reduced motion.
const calmEvery = 500;

const calm = matchMedia("(prefers-reduced-motion: reduce)");

// The slider's steps grow with the rate.
const rateOf = (position) => Math.round(mostRate * (position / 100) ** 2.5 * 10) / 10;
const positionOf = (rate) => Math.round(100 * (Math.min(rate, mostRate) / mostRate) ** 0.4);

// The time from a preset's beginning to its first request, and from its last request to the
// repetition, in windows. The last request is then still in the picture.
const before = second;
const after = 0.9;

// Playground connects the page's controls, its clock, its world and its pictures.
export class Playground {
  #colors = palette();
  #lanes; // of the chooser
  #screens = []; // the lanes of the story
  #pair; // the two proxies of the story
  #playing = ""; // the preset's name
  #repeats = Infinity; // when the preset begins again
  #lane = ""; // the lane that the address points at
  #embed = ""; // the only lane that is shown, if any
  #worded = -Infinity; // the time of the last words, by the browser's clock
  #drawn = -Infinity;
  #link = ""; // to the current view
  #addressed; // the timer that writes the link to the address
  #spoken = { at: -Infinity, sent: 0 };

  constructor(engine, Clock) {
    this.world = new World(engine);
    const asked = settings(location.search, Object.keys(presets), lanes.map((lane) => lane.name));
    this.#embed = asked.embed;
    this.#lanes = lanes.map((lane, i) => new LaneView(lane, i)).filter((lane) => !asked.embed || lane.name === asked.embed);
    byID("lanes").append(...this.#lanes.map((lane) => lane.element));
    if (!asked.embed) {
      this.#screens = [...document.querySelectorAll(".screen[data-lane]")].map((screen) => this.#screen(screen));
      this.#pair = new Pair(byID("pair"), holdable);
    }
    for (const lane of [...this.#lanes, ...this.#screens]) lane.attach(() => this.draw());
    for (const lane of this.#lanes) {
      lane.details.addEventListener("toggle", () => {
        for (const other of this.#lanes) other.details.open = lane.details.open;
      });
    }
    this.clock = new Clock((passed) => this.#tick(passed));
    this.#controls();
    this.clock.speed = asked.speed;
    this.world.limit = asked.limit;
    this.world.window = asked.window * second;
    this.clock.run();
    if (asked.preset) {
      this.#preset(asked.preset);
    } else {
      this.world.rate = asked.rate;
      this.world.restart();
      this.#settings("");
    }
    this.#mark(asked.lane);
    if (asked.lane) this.#screens.findLast((screen) => screen.name === asked.lane)?.element.closest(".screen").scrollIntoView();
  }

  recolor() {
    this.#colors = palette();
    this.draw();
  }

  // draw draws the present, in pictures and words.
  draw() {
    this.#draw(true);
  }

  #tick(passed) {
    this.world.advance(passed);
    this.#pair?.advance(passed);
    if (this.world.now >= this.#repeats && !this.clock.paused) this.#begin();
    this.#draw(this.clock.paused);
  }

  #draw(everything) {
    const now = performance.now();
    if (!everything && calm.matches && now - this.#drawn < calmEvery) return;
    this.#drawn = now;
    const words = everything || now - this.#worded >= wordsEvery;
    if (words) this.#worded = now;
    for (const lane of [...this.#lanes, ...this.#screens]) {
      if (everything || lane.seen) lane.show(this.world, this.#colors, words);
    }
    if (words) this.#speak(now);
  }

  // speak tells those who hear the page the counts, now and then.
  #speak(now) {
    const { world } = this;
    if (world.sent === this.#spoken.sent || now - this.#spoken.at < spokenEvery) return;
    this.#spoken = { at: now, sent: world.sent };
    const passed = world.lanes.map((lane, i) => `${lanes[i].title} ${lane.passed}`);
    byID("spoken").textContent = `Requests sent: ${world.sent}. Passed: ${passed.join("; ")}.`;
  }

  // hits has a button send requests to all lanes.
  #hits(button) {
    const { world } = this;
    holdable(button, {
      hit: () => {
        this.#repeats = Infinity;
        world.hit();
      },
      hold: () => {
        this.#repeats = Infinity;
        world.hold();
      },
      release: () => world.release(),
      shown: () => this.draw(),
    });
  }

  #controls() {
    const { world, clock } = this;
    this.#hits(byID("hit"));
    byID("rate").addEventListener("input", (event) => {
      world.setRate(rateOf(event.target.valueAsNumber));
      this.#settings("");
    });
    const limit = () => {
      world.setLimit(byID("limit").valueAsNumber, Number(byID("window").value) * second);
      this.#settings("");
    };
    byID("limit").addEventListener("input", limit);
    byID("window").addEventListener("change", limit);
    byID("pause").addEventListener("click", () => {
      if (clock.paused) clock.run();
      else clock.pause();
      this.#settings();
    });
    byID("step").addEventListener("click", () => {
      clock.pause();
      clock.step(world.window / 50);
      this.#settings();
    });
    byID("restart").addEventListener("click", () => {
      world.restart();
      this.#settings("");
    });
    byID("speed").addEventListener("change", (event) => {
      clock.speed = Number(event.target.value);
      this.#settings();
    });
    byID("copy").addEventListener("click", () => {
      // Without settings, an address may lead to the live view.
      const view = !this.#link.includes("?") && !byID("views").hidden ? "#playground" : "";
      copy(new URL(this.#link + view, location).href, byID("copied"));
    });
    byID("to-chooser").addEventListener("click", (event) => {
      event.preventDefault(); // the address names the view
      byID("chooser").scrollIntoView();
      byID("controls").focus({ preventScroll: true });
    });
    for (const button of byID("presets").children) {
      button.addEventListener("click", () => {
        this.#preset(button.dataset.preset);
        clock.run();
        this.#settings();
      });
    }
  }

  // screen gives a part of the story its lane, its buttons, and what can be taken along.
  #screen(screen) {
    const i = lanes.findIndex(({ name }) => name === screen.dataset.lane);
    const view = new LaneView(lanes[i], i, `${screen.querySelector(".number").textContent}, played`);
    this.#hits(screen.querySelector(".hit"));
    for (const button of screen.querySelectorAll("[data-preset]")) {
      button.addEventListener("click", () => {
        this.#preset(button.dataset.preset);
        this.clock.run();
        this.#mark(view.name);
      });
    }
    const use = card("use");
    const rule = () => ruleOf(lanes[i], this.world);
    use.addEventListener("toggle", () => (use.querySelector("pre").textContent = rule()));
    const address = (set) => new URL(`${location.pathname}${query({ ...this.#set(), lane: view.name, ...set })}`, location).href;
    const copies = {
      rule,
      link: () => address({}),
      frame: () => `<iframe src="${address({ embed: view.name }).replaceAll("&", "&amp;")}" title="${view.title}" width="100%" height="460"></iframe>`,
    };
    for (const button of use.querySelectorAll("button")) {
      button.addEventListener("click", () => copy(copies[button.dataset.copy](), use.querySelector("[role=status]")));
    }
    screen.querySelector(":scope > dl")?.after(use);
    screen.append(view.element);
    return view;
  }

  // mark marks a lane among the others, and in the address.
  #mark(name) {
    this.#lane = name;
    for (const lane of this.#lanes) lane.element.classList.toggle("pointed", lane.name === name);
    this.#settings();
  }

  // set is what an address says.
  #set() {
    const { world, clock } = this;
    const rate = Math.round(world.rate * 10) / 10;
    return { preset: this.#playing, limit: world.limit, window: world.window / second, rate, speed: clock.speed, lane: this.#lane, embed: this.#embed };
  }

  // address changes the address, but not at each step of a slider: browsers allow only a few
  // changes a second.
  #address(asked) {
    this.#link = `${location.pathname}${asked}`;
    clearTimeout(this.#addressed);
    this.#addressed = setTimeout(() => history.replaceState(null, "", this.#link + location.hash), 250);
  }

  #preset(name) {
    const { world } = this;
    const preset = presets[name];
    world.rate = preset.rate ? preset.rate(world.limit, world.window) : 0;
    this.#playing = name;
    this.#begin();
    this.#settings(preset.told(world.limit), name);
  }

  // begin plays the preset from its beginning. A preset with bursts is repeated.
  #begin() {
    const { world } = this;
    const { times } = presets[this.#playing];
    world.restart();
    this.#repeats = Infinity;
    if (!times) return;
    const requests = times(world.limit, world.window);
    world.play(requests);
    world.advance(Math.round(Math.max(0, Math.min(...requests) - before)));
    this.#repeats = Math.max(...requests) + after * world.window;
  }

  // settings shows the settings. told is the page's text about the preset that plays.
  #settings(told = byID("told").textContent, preset = told && this.#playing) {
    const { world, clock } = this;
    this.#playing = preset;
    if (!preset) this.#repeats = Infinity;
    for (const button of document.querySelectorAll("[data-preset]")) {
      button.setAttribute("aria-pressed", button.dataset.preset === preset);
    }
    const rate = Math.round(world.rate * 10) / 10;
    byID("rate").value = positionOf(world.rate);
    byID("rate-text").textContent = rate === 0 ? "none" : `${rate} a second`;
    byID("rate").setAttribute("aria-valuetext", rate === 0 ? "no requests" : `${rate} requests a second`);
    byID("limit").value = world.limit;
    byID("window").value = world.window / second;
    byID("speed").value = clock.speed;
    byID("limit-text").textContent = `${world.limit} in a window`;
    byID("limit").setAttribute("aria-valuetext", `${world.limit} requests in a window`);
    byID("step").textContent = `Step ${world.window / 50 / second} s`;
    byID("pause").textContent = clock.paused ? "Go on" : "Pause";
    byID("told").textContent = told;
    byID("copied").textContent = "";
    const set = this.#set();
    this.#address(query(set));
    byID("whole").href = `./${query({ ...set, lane: this.#embed, embed: "" })}`;
    this.draw();
  }
}

// holdable makes a button hit once when it is pressed, and repeat while it is held, by mouse,
// finger, pen or keyboard. A click alone, as of a screen reader, hits once.
function holdable(button, { hit, hold, release, shown }) {
  const press = () => {
    button.classList.add("held");
    hold();
    shown();
  };
  const letGo = () => {
    button.classList.remove("held");
    release();
  };
  button.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    button.setPointerCapture(event.pointerId);
    press();
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture", "blur"]) button.addEventListener(end, letGo);
  button.addEventListener("keydown", (event) => {
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    if (!event.repeat) press();
  });
  button.addEventListener("keyup", (event) => {
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    letGo();
  });
  button.addEventListener("click", (event) => {
    if (event.detail !== 0) return; // the press has hit already
    hit();
    shown();
  });
  button.addEventListener("contextmenu", (event) => event.preventDefault());
}

// LaneView is a lane's part of the page.
class LaneView {
  #kind;
  #number;
  #parts;
  #picture;
  #texts = new Map();

  // label names the picture, if the lane is shown elsewhere, too.
  constructor(kind, number, label) {
    this.#kind = kind;
    this.#number = number;
    this.name = kind.name;
    this.title = kind.title;
    this.seen = true;
    this.element = card("lane");
    const part = (selector) => this.element.querySelector(selector);
    this.details = part("details");
    this.#parts = {
      title: part("h2"), status: part(".status"), canvas: part("canvas"), does: part(".does"), verdict: part(".verdict"), just: part(".just"), passed: part("dd.passed"),
      refused: part("dd.refused"), most: part(".most"), mostOf: part(".most-of"), size: part(".size"), headers: part("pre"),
    };
    this.element.setAttribute("aria-label", label ?? kind.title);
    if (label) part("header h2").replaceWith((this.#parts.title = document.createElement("p")));
    this.#parts.title.textContent = kind.title;
    this.#parts.canvas.setAttribute("aria-label", `${kind.title}: its requests and its counter over time, told below`);
  }

  // attach begins to draw. The element must be in the page: before, it has no size.
  attach(resized) {
    this.#picture = new Picture(this.#parts.canvas, this.#kind.draws);
    this.#picture.resized = resized;
    new IntersectionObserver((entries) => {
      this.seen = entries.at(-1).isIntersecting;
    }, { rootMargin: "200px" }).observe(this.element);
  }

  show(world, colors, words) {
    const view = world.look(this.#number);
    this.#picture.draw(world, this.#number, view, colors);
    if (words) this.#word(world, view);
  }

  #word(world, view) {
    const lane = world.lanes[this.#number];
    const { last } = lane;
    const parts = this.#parts;
    this.#set(parts.does, this.#kind.does(world));
    this.#set(parts.verdict, (this.#kind.verdict ?? verdict)(lane, world));
    parts.verdict.classList.toggle("over", lane.most > world.limit);
    this.#set(parts.just, last ? this.#kind.just(view, world) : "No request has come yet.");
    this.#set(parts.passed, `${lane.passed}`);
    this.#set(parts.refused, `${lane.refused}`);
    this.#set(parts.mostOf, this.#kind.mostOf?.() ?? `Most in any ${world.window / second} s`);
    this.#set(parts.most, `${lane.most} of ${world.limit}`);
    parts.most.classList.toggle("over", lane.most > world.limit);
    this.#set(parts.size, `${view.size} bytes`);
    this.#set(parts.status, last ? (last.waits ? "waits" : last.allowed ? "passed" : "refused") : "");
    parts.status.className = `status ${parts.status.textContent}`;
    const line = last?.allowed ? "HTTP/1.1 200 OK" : "HTTP/1.1 429 Too Many Requests";
    this.#set(parts.headers, !last ? "No request has come yet." : last.waits ? "The request waits: it has no response yet." : `${line}\n${last.headers}`);
  }

  // set changes a text only if it differs, to avoid useless layout.
  #set(element, text) {
    if (this.#texts.get(element) === text) return;
    this.#texts.set(element, text);
    element.textContent = text;
  }
}
