import { exported } from "./engine.js";
import { byID, say } from "./parts.js";
import { second } from "./world.js";

const window = 10 * second;
// How long a picture of a call lasts, in milliseconds: the call itself takes 2 to 4.
const shown = 500;
// The ways between the proxies and the backend in the picture, in its percents.
const proxies = [[33, 58], [67, 58]];
const backend = [[47, 24], [53, 24]];

// Pair is the story's last screen: two proxies and their backend, as package pair has them. Their module is
// loaded when the screen comes into view. Its time is the page's.
export class Pair {
  #element;
  #exports;
  // What each proxy still gets: how many requests, how far apart, and how long until the next.
  #coming = [0, 1].map(() => ({ left: 0, every: 0, next: 0 }));
  #sent = [0, 0];
  #seen = false;
  #away = false;
  #above = false; // whether more than the limit has passed while the backend was away

  constructor(element, holdable) {
    this.#element = element;
    new IntersectionObserver((entries) => {
      this.#seen = entries.at(-1).isIntersecting;
      if (this.#seen) this.#load();
    }, { rootMargin: "400px" }).observe(element);
    for (const button of element.querySelectorAll("[data-proxy]")) {
      const proxy = Number(button.dataset.proxy);
      const hit = () => this.#hit(proxy);
      holdable(button, {
        hit,
        hold: () => {
          hit();
          this.#send(proxy, Infinity, second / 10, 0.4 * second);
        },
        release: () => this.#send(proxy, 0, 0, 0),
        shown: () => this.advance(0),
      });
    }
    for (const button of element.querySelectorAll("[data-burst]")) {
      button.addEventListener("click", () => this.#send(Number(button.dataset.burst), 40, second / 40, 0));
    }
    byID("pair-away").addEventListener("click", () => {
      this.#away = !this.#away;
      this.#exports.away(this.#away ? 1 : 0);
      byID("pair-away").textContent = this.#away ? "Start the backend" : "Stop the backend";
      byID("pair-away").setAttribute("aria-pressed", this.#away);
      this.advance(0);
    });
    byID("pair-limit").addEventListener("change", () => this.#set());
  }

  async #load() {
    if (this.#exports !== undefined) return;
    this.#exports = null;
    say(byID("pair-told"), "The proxies are loading.");
    try {
      const response = await fetch("pair.wasm");
      if (!response.ok) throw new Error("it is not here");
      this.#exports = await exported(await response.arrayBuffer());
      for (const control of this.#element.querySelectorAll(":disabled")) control.disabled = false;
      say(byID("pair-told"), "No request has come yet.");
      this.#set();
    } catch (error) {
      byID("pair-told").textContent = `The page can’t load the proxies: ${error.message}`;
    }
  }

  get limit() {
    return Number(byID("pair-limit").value);
  }

  #set() {
    this.#exports.set(BigInt(this.limit), BigInt(window));
    this.#exports.away(this.#away ? 1 : 0);
    this.#sent = this.#look(0).proxies.map(({ sent }) => sent);
    this.#above = false;
    this.advance(0);
  }

  #hit(proxy) {
    this.#exports?.hit(proxy);
  }

  #send(proxy, left, every, next) {
    this.#coming[proxy] = { left, every, next };
  }

  // look returns the numbers of package pair.
  #look(nanos) {
    const count = this.#exports.look(BigInt(nanos));
    const n = new Float64Array(this.#exports.memory.buffer, this.#exports.numbers_at(), count);
    return {
      most: n[0], ends: n[1], requests: n[2], waited: n[3],
      proxies: [4, 8].map((i) => ({ passed: n[i], refused: n[i + 1], held: n[i + 2], sent: n[i + 3] })),
    };
  }

  // advance lets time pass, and shows what has happened.
  advance(nanos) {
    if (!this.#exports || !this.#seen) return;
    this.#coming.forEach((coming, proxy) => {
      for (coming.next -= nanos; coming.left > 0 && coming.next <= 0; coming.next += coming.every) {
        this.#hit(proxy);
        coming.left--;
      }
    });
    const seen = this.#look(nanos);
    const { limit } = this;
    const held = seen.proxies[0].held + seen.proxies[1].held;
    const left = Math.max(0, limit - seen.most - held);
    this.#element.querySelector(".tank i").style.width = `${Math.min(100, (100 * left) / limit)}%`;
    this.#element.classList.toggle("away", this.#away);
    say(byID("pair-left"), this.#away ? "away" : `${left} of ${limit} left`);
    seen.proxies.forEach(({ passed, refused, held: holds, sent }, i) => {
      say(this.#element.querySelectorAll(".held")[i], holds === 0 ? "none in hand" : `${holds} in hand`);
      say(this.#element.querySelectorAll(".passes")[i], `${passed} passed`);
      say(this.#element.querySelectorAll(".refuses")[i], `${refused} refused`);
      if (sent > this.#sent[i]) this.#move(i);
      this.#sent[i] = sent;
    });
    const [a, b] = seen.proxies;
    this.#above ||= seen.most > limit;
    if (seen.most <= limit && !this.#away) this.#above = false;
    const verdict = byID("pair-verdict");
    verdict.classList.toggle("over", this.#above || this.#away);
    if (this.#away) say(verdict, `The backend is away: each proxy counts alone, so up to ${2 * limit} may pass.`);
    else if (this.#above) say(verdict, `${seen.most} of ${limit} count: what passed without the backend is counted now.`);
    else say(verdict, seen.requests === 0 ? "" : `Kept: ${seen.most} of ${limit} have passed in this window, at both together.`);
    if (seen.requests > 0) {
      say(byID("pair-told"), `${a.passed + b.passed} have passed since the start: ${a.passed} at A, ${b.passed} at B. ${seen.waited} of ${seen.requests} requests have waited for the backend. The window ends in ${(seen.ends / second).toFixed(0)} s.`);
    }
  }

  // move shows a call of a proxy, and its answer.
  #move(proxy) {
    const map = byID("pair-map");
    if (map.querySelectorAll(".dot").length > 8) return;
    const dot = document.createElement("i");
    dot.className = "dot";
    map.append(dot);
    const [x, y] = proxies[proxy];
    const [u, v] = backend[proxy];
    const at = (left, top) => ({ left: `${left}%`, top: `${top}%` });
    const way = this.#away ? [at(x, y), at((x + u) / 2, (y + v) / 2)] : [at(x, y), at(u, v), at(x, y)];
    dot.animate(way, shown).onfinish = () => dot.remove();
  }
}
