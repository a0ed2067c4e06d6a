// The world begins at a time at which a window of every width does.
const epoch = 1_767_225_600_000_000_000n; // 2026-01-01

export const subBuckets = 10;

// span is how much of the past is kept and shown, in windows.
export const span = 2.4;

export const second = 1e9;

// World sends requests to all lanes, and remembers what became of them. Times are in nanoseconds since
// the world began, whole numbers: what is exactly a window old is so in the page too.
export class World {
  now = 0;
  limit = 10;
  window = 10 * second;
  rate = 0; // requests a second

  #engine;
  #script = []; // times, the last one first
  #steady = Infinity; // when the next one of the steady rate is due
  #since = 0; // that the steady rate is what it is
  #count = 0; // of its requests since
  #held = Infinity; // and of the button

  constructor(engine) {
    this.#engine = engine;
    this.restart();
  }

  // restart begins anew, with the same settings and nothing but the steady rate.
  restart() {
    this.now = 0;
    this.requests = []; // of the time shown: {at, passed}, a bit for each lane
    this.sent = 0;
    this.#script = [];
    this.#held = Infinity;
    this.most = 0; // that any lane has let pass in any window
    this.lanes = Array.from({ length: this.#engine.lanes }, (_, i) => {
      this.#engine.set(i, this.limit, BigInt(this.window), subBuckets);
      return new Lane();
    });
    this.setRate(this.rate);
  }

  setLimit(limit, window) {
    this.limit = limit;
    this.window = window;
    this.restart();
  }

  setRate(rate) {
    this.rate = rate;
    this.#since = this.now;
    this.#count = 0;
    this.#steady = this.#due();
  }

  // due is when the next request of the steady rate comes. Times don't drift by what is rounded.
  #due() {
    return this.rate > 0 ? this.#since + Math.round(((this.#count + 1) * second) / this.rate) : Infinity;
  }

  // play has requests come at times.
  play(times) {
    this.#script = times.map(Math.round).sort((a, b) => b - a);
  }

  hit() {
    this.#request(this.now);
  }

  // hold repeats hits until release, ten times a second.
  hold() {
    this.hit();
    this.#held = this.now + 0.4 * second;
  }

  release() {
    this.#held = Infinity;
  }

  advance(nanos) {
    const until = this.now + nanos;
    for (;;) {
      const script = this.#script.at(-1) ?? Infinity;
      const at = Math.min(script, this.#steady, this.#held);
      if (at > until) break;
      if (at === script) this.#script.pop();
      else if (at === this.#steady) {
        this.#count++;
        this.#steady = this.#due();
      } else this.#held = at + second / 10;
      this.#request(at);
    }
    this.now = until;
    this.#forget();
  }

  // look is what a lane knows now.
  look(lane) {
    return this.#engine.look(lane, this.#nanos(this.now));
  }

  #nanos(at) {
    return epoch + BigInt(at);
  }

  #request(at) {
    this.now = at;
    const request = { at, passed: 0 };
    for (let i = 0; i < this.lanes.length; i++) {
      const { allowed, headers } = this.#engine.hit(i, this.#nanos(at));
      if (allowed) request.passed |= 1 << i;
      this.lanes[i].note(at, allowed, headers, this, allowed ? this.look(i) : null);
      this.most = Math.max(this.most, this.lanes[i].most);
    }
    this.requests.push(request);
    this.sent++;
  }

  // forget drops what is not shown any more.
  #forget() {
    const before = this.now - (span + 1) * this.window;
    drop(this.requests, (r) => r.at < before);
    for (const lane of this.lanes) lane.forget(before);
  }
}

// Lane is what became of one lane's requests.
class Lane {
  passed = 0;
  refused = 0;
  strict = 0; // of those refused, how many came when less than the limit had passed in the window before
  most = 0; // that passed in any window
  last = null; // {at, allowed, headers}
  times = []; // of what passed, of the time shown and a window before
  windows = []; // that hits have counted in: {start, hits}
  levels = []; // of the bucket, after each hit: {at, left, next}
  #oldest = 0; // of times, in the window that ends with the last

  note(at, allowed, headers, { window, limit }, view) {
    this.last = { at, allowed, headers };
    if (!allowed) {
      this.refused++;
      if (this.#within(at, window) < limit) this.strict++;
      return;
    }
    this.passed++;
    this.times.push(at);
    this.most = Math.max(this.most, this.#within(at, window));
    this.levels.push({ at, left: view.remaining, next: view.next });
    if (view.age < 0) return;
    const start = at - view.age;
    const newest = this.windows.at(-1);
    if (newest?.start === start) newest.hits = view.current;
    else this.windows.push({ start, hits: view.current });
  }

  // within is how many have passed in the window that ends at a time, which is not before the last one.
  #within(at, window) {
    while (this.times[this.#oldest] <= at - window) this.#oldest++;
    return this.times.length - this.#oldest;
  }

  forget(before) {
    this.#oldest -= drop(this.times, (at) => at < before);
    this.#oldest = Math.max(this.#oldest, 0);
    drop(this.windows, (w) => w.start < before);
    drop(this.levels, (l) => l.at < before);
  }
}

// drop removes what list begins with, as long as it is old, and returns how many there were.
function drop(list, old) {
  let n = 0;
  while (n < list.length && old(list[n])) n++;
  if (n > 0) list.splice(0, n);
  return n;
}
