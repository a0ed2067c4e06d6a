// The lanes of package lane, in WebAssembly. Times are BigInts, in nanoseconds since the Unix epoch.

// An engine asks little of its host: Go's runtime needs a clock, random numbers, and a place to
// write the reason why it ends.
const wasi = (memory) => {
  const words = () => new DataView(memory().buffer);
  const none = (count, size) => {
    words().setUint32(count, 0, true);
    words().setUint32(size, 0, true);
    return 0;
  };
  const known = {
    args_get: () => 0,
    args_sizes_get: none,
    environ_get: () => 0,
    environ_sizes_get: none,
    clock_time_get(_clock, _precision, at) {
      words().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
      return 0;
    },
    random_get(at, length) {
      crypto.getRandomValues(new Uint8Array(memory().buffer, at, length));
      return 0;
    },
    fd_write(_file, list, count, written) {
      let length = 0;
      for (let i = 0; i < count; i++) {
        const at = words().getUint32(list + 8 * i, true);
        const size = words().getUint32(list + 8 * i + 4, true);
        console.error(new TextDecoder().decode(new Uint8Array(memory().buffer, at, size)));
        length += size;
      }
      words().setUint32(written, length, true);
      return 0;
    },
    poll_oneoff: () => 0, // nothing sleeps
    sched_yield: () => 0,
    proc_exit(code) {
      throw new Error(`the engine has ended with ${code}`);
    },
  };
  const lacks = () => 8; // what else is asked for is about files, and there are none: EBADF
  return new Proxy(known, { get: (of, name) => of[name] ?? lacks });
};

// exported returns what a module exports.
export async function exported(bytes) {
  let exports;
  const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: wasi(() => exports.memory) });
  exports = instance.exports;
  exports._initialize();
  return exports;
}

export const load = async (bytes) => new Engine(await exported(bytes));

class Engine {
  #exports;
  #text = new TextDecoder();

  constructor(exports) {
    this.#exports = exports;
    this.lanes = exports.count(); // the number of lanes
  }

  // set gives a lane a limit per window, and forgets its hits.
  set(lane, limit, windowNanos, buckets) {
    const fault = this.#exports.set(lane, BigInt(limit), windowNanos, BigInt(buckets));
    if (fault !== 0) throw new RangeError(`a limit of ${limit} in ${windowNanos} ns has the fault ${fault}`);
  }

  // holds returns whether a lane's requests hold places until release.
  holds(lane) {
    return this.#exports.holds(lane) === 1;
  }

  // release ends the request that has held a place for longest.
  release(lane, now) {
    this.#exports.release(lane, now);
  }

  // hit sends a request. headers are those of the response, a line for each. wait is how many
  // nanoseconds an allowed request waits.
  hit(lane, now) {
    const allowed = this.#exports.hit(lane, now) === 1;
    const bytes = new Uint8Array(this.#exports.memory.buffer, this.#exports.text_at(), this.#exports.text_length());
    return { allowed, wait: Number(this.#exports.wait_nanos()), headers: this.#text.decode(bytes) };
  }

  // look returns the state of a lane: see View of package lane. Times are in nanoseconds.
  look(lane, now) {
    const count = this.#exports.look(lane, now);
    const n = new Float64Array(this.#exports.memory.buffer, this.#exports.numbers_at(), count);
    const view = {
      quota: n[0], remaining: n[1], used: n[2], next: n[3], reset: n[4],
      age: n[5], current: n[6], previous: n[7], size: n[8], buckets: [],
    };
    for (let i = 9; i < count; i += 2) view.buckets.push({ age: n[i], hits: n[i + 1] });
    return view;
  }
}
