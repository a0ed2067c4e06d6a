// The world begins at a time that begins a window of every width.
const epoch = 1_767_225_600_000_000_000n; // 2026-01-01

export const subBuckets = 10;

// span is the part of the past that is kept and shown, in windows.
export const span = 2.4;

export const second = 1e9;

// lasts returns how long a request holds its place in a lane that holds.
export const lasts = (window) => (window * 2) / 5;

// World sends requests to all lanes, and records the outcomes. Times are whole nanoseconds since
// the world began, so that a request which is exactly a window old is so in the page too.
export class World {
  now = 0;
  limit = 10;
  window = 10 * second;
  rate = 0; // requests a second

  #engine;
  #script = []; // times, the last first
  #steady = Infinity; // when the next request of the steady rate is due
  #since = 0; // since the steady rate was last set
  #count = 0; // the requests of the steady rate since then
  #held = Infinity; // when the held button hits next

  constructor(engine) {
    this.#engine = engine;
    this.restart();
  }

  // restart begins again, with the same settings and only the steady rate.
  restart() {
    this.now = 0;
    this.requests = []; // those that are shown: {at, passed}, a bit for each lane
    this.sent = 0;
    this.#script = [];
    this.#held = Infinity;
    this.most = 0; // the most that any lane has let pass in any window
    this.lanes = Array.from({ length: this.#engine.lanes }, (_, i) => {
      this.#engine.set(i, this.limit, BigInt(this.window), subBuckets);
      const holds = this.#engine.holds(i);
      return new Lane(holds, holds ? lasts(this.window) : this.window);
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

  // due returns when the next request of the steady rate comes. It counts from the start of the
  // rate, so that roundings don't add up.
  #due() {
    return this.rate > 0 ? this.#since + Math.round(((this.#count + 1) * second) / this.rate) : Infinity;
  }

  // play schedules requests.
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
      const later = Math.min(...this.lanes.map((lane) => lane.later()));
      if (Math.min(at, later) > until) break;
      if (later <= at) {
        this.#later(later);
        continue;
      }
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

  // look returns the state of a lane now.
  look(lane) {
    return this.#engine.look(lane, this.#nanos(this.now));
  }

  #nanos(at) {
    return epoch + BigInt(at);
  }

  // later ends requests, and continues those that have waited.
  #later(at) {
    this.now = at;
    this.lanes.forEach((lane, i) => {
      if (lane.later() !== at) return;
      if (lane.ends.length > 0) {
        lane.ends.shift();
        this.#engine.release(i, this.#nanos(at));
        return;
      }
      const { request, headers } = lane.lets.shift();
      request.waits &= ~(1 << i);
      request.passed |= 1 << i;
      this.#note(i, at, true, headers);
    });
  }

  #note(i, at, allowed, headers) {
    const lane = this.lanes[i];
    lane.note(at, allowed, headers, this, allowed ? this.look(i) : null);
    if (allowed && lane.holds) lane.ends.push(at + lane.reach);
    this.most = Math.max(this.most, lane.most);
  }

  #request(at) {
    this.now = at;
    const request = { at, passed: 0, waits: 0 };
    for (let i = 0; i < this.lanes.length; i++) {
      const { allowed, wait, headers } = this.#engine.hit(i, this.#nanos(at));
      if (wait > 0) {
        request.waits |= 1 << i;
        this.lanes[i].wait(at, at + wait, request, headers);
        continue;
      }
      if (allowed) request.passed |= 1 << i;
      this.#note(i, at, allowed, headers);
    }
    this.requests.push(request);
    this.sent++;
  }

  // forget drops all that is no longer shown.
  #forget() {
    const before = this.now - (span + 1) * this.window;
    drop(this.requests, (r) => r.at < before);
    for (const lane of this.lanes) lane.forget(before);
  }
}

// Lane has the outcomes of a lane's requests.
class Lane {
  passed = 0;
  refused = 0;
  strict = 0; // the refused requests that came when fewer than the limit had passed in the window before
  most = 0; // the most that passed in any window
  last = null; // {at, allowed, headers}, or {at, waits}
  ends = []; // the times at which requests that hold places end
  lets = []; // waiting requests: {at, request, headers}, where at is when they continue
  queued = []; // waiting requests that are shown: {at, until}
  times = []; // the times of requests that passed, of the time shown and a window before
  windows = []; // windows with hits: {start, hits}
  levels = []; // levels of the bucket, after each hit: {at, left, next}
  #oldest = 0; // the index in times of the first in the window that ends with the last

  // reach is how long a passed request counts: a window, or as long as requests hold their places.
  constructor(holds, reach) {
    this.holds = holds;
    this.reach = reach;
  }

  // later returns the time of the next event that is not a request.
  later() {
    return Math.min(this.ends[0] ?? Infinity, this.lets[0]?.at ?? Infinity);
  }

  // wait makes a request wait.
  wait(at, until, request, headers) {
    this.last = { at, waits: true };
    this.lets.push({ at: until, request, headers });
    this.queued.push({ at, until });
  }

  note(at, allowed, headers, { limit }, view) {
    this.last = { at, allowed, headers };
    if (!allowed) {
      this.refused++;
      if (this.#within(at) < limit) this.strict++;
      return;
    }
    this.passed++;
    this.times.push(at);
    this.most = Math.max(this.most, this.#within(at));
    this.levels.push({ at, left: view.remaining, next: view.next });
    if (view.age < 0) return;
    const start = at - view.age;
    const newest = this.windows.at(-1);
    if (newest?.start === start) newest.hits = view.current;
    else this.windows.push({ start, hits: view.current });
  }

  // within returns how many passed in the window that ends at a time, which must not be before the
  // last.
  #within(at) {
    while (this.times[this.#oldest] <= at - this.reach) this.#oldest++;
    return this.times.length - this.#oldest;
  }

  forget(before) {
    this.#oldest -= drop(this.times, (at) => at < before);
    this.#oldest = Math.max(this.#oldest, 0);
    drop(this.windows, (w) => w.start < before);
    drop(this.levels, (l) => l.at < before);
    drop(this.queued, (q) => q.until < before);
  }
}

// drop removes the old entries at the beginning of list, and returns how many they were.
function drop(list, old) {
  let n = 0;
  while (n < list.length && old(list[n])) n++;
  if (n > 0) list.splice(0, n);
  return n;
}
