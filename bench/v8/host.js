// A proxy-wasm host (ABI 0.2.1) for benchmarks: it behaves as Envoy's does, and does as little as
// it can meanwhile, so that what is measured is the filter. Everything is bytes; nothing on the
// path of a stream makes strings, and next to nothing makes garbage.
//
// What Envoy has and this host has not: bodies and trailers, callouts, streams that wait, queues,
// foreign functions, several root contexts in a VM, several VMs in a process. Header names are
// compared as they are, so filters use lower case.
//
// Import this module under a name of its own (host.js?weir) for each filter: then V8 keeps what it
// learns of one filter's calls apart from the others'.

const OK = 0, NOT_FOUND = 1, BAD_ARGUMENT = 2, CAS_MISMATCH = 8, UNIMPLEMENTED = 12;
const CONTINUE = 0;
const PHASE_REQUEST = 1, PHASE_RESPONSE = 2;
// Shorter bytes are copied one by one: making a view and calling set costs as much as this many.
const SHORT = 24;

// Fields of an entry of shared data, and where its key is.
const CAS = 0, LENGTH = 1, KEY = 2, KEY_LENGTH = 3, VALUE = 4;

const encoder = new TextEncoder(), decoder = new TextDecoder();

/** The bytes of a text. */
export const bytes = text => encoder.encode(text);
/** The text of bytes. */
export const text = utf8 => decoder.decode(utf8);

function copy(to, toAt, from, fromAt, length) {
  if (length <= SHORT) {
    for (let i = 0; i < length; i++) to[toAt + i] = from[fromAt + i];
  } else {
    to.set(from.subarray(fromAt, fromAt + length), toAt);
  }
}

/** The same for what is often aligned, of which there is a view in words too. */
function copyWords(to, toWords, toAt, from, fromWords, fromAt, length) {
  if (length > 256 || ((toAt | fromAt) & 3) !== 0) {
    copy(to, toAt, from, fromAt, length);
    return;
  }
  const count = length >> 2, toWord = toAt >> 2, fromWord = fromAt >> 2;
  for (let i = 0; i < count; i++) toWords[toWord + i] = fromWords[fromWord + i];
  for (let i = count << 2; i < length; i++) to[toAt + i] = from[fromAt + i];
}

function same(a, aAt, b, bAt, length) {
  for (let i = 0; i < length; i++) if (a[aAt + i] !== b[bAt + i]) return false;
  return true;
}

/** Time in nanoseconds since the Unix epoch, which only goes on when it is told to. */
export class FakeClock {
  constructor(nanos) {
    this.low = Number(nanos & 0xffffffffn);
    this.high = Number(nanos >> 32n);
  }

  advance(nanos) {
    this.low += nanos;
    if (this.low >= 0x100000000) {
      this.high += Math.floor(this.low / 0x100000000);
      this.low %= 0x100000000;
    }
  }

  write(view, at) {
    view.setUint32(at, this.low, true);
    view.setUint32(at + 4, this.high, true);
  }
}

/**
 * Shared data: a map under compare-and-set. Keys and values are copied in and out.
 *
 * Everything is in one buffer, as objects of many keys would be all over the machine's memory, and
 * finding them would take longer than anything that is measured.
 */
export class SharedData {
  constructor() {
    this.places = new Int32Array(1 << 18); // open addressing: addresses of entries in words, or 0
    this.words = new Int32Array(1 << 24);
    this.bytes = new Uint8Array(this.words.buffer);
    this.used = 0;
    this.end = 4;
    this.writes = 0;
  }

  /** The place of a key's entry, or the free one where it would be. */
  find(key, at, length) {
    let hash = 0x811c9dc5;
    for (let i = 0; i < length; i++) hash = Math.imul(hash ^ key[at + i], 0x01000193);
    const mask = this.places.length - 1;
    for (let place = (hash ^ hash >>> 15) & mask; ; place = place + 1 & mask) {
      const e = this.places[place];
      if (e === 0 || this.words[e + KEY_LENGTH] === length && same(this.bytes, 4 * (e + this.words[e + KEY]), key, at, length)) return place;
    }
  }

  /** The address of a key's entry; 0 if there is none. The entry's fields are in words from there on. */
  get(key, at, length) { return this.places[this.find(key, at, length)]; }

  set(key, keyAt, keyLength, value, valueWords, valueAt, valueLength, cas) {
    const place = this.find(key, keyAt, keyLength), words = this.words;
    let e = this.places[place];
    if (e !== 0 && cas !== 0 && cas !== words[e + CAS]) return CAS_MISMATCH;
    if (e === 0 || VALUE + (valueLength + 3 >> 2) > words[e + KEY]) {
      // An entry with room for a value twice as long. What the key had before is lost.
      if (e === 0) this.used++;
      e = this.places[place] = this.end;
      words[e + KEY] = VALUE + Math.max(8, valueLength >> 1);
      words[e + KEY_LENGTH] = keyLength;
      this.end += words[e + KEY] + (keyLength + 3 >> 2);
      if (this.end > words.length || 2 * this.used > this.places.length) throw new Error('shared data is full');
      copy(this.bytes, 4 * (e + words[e + KEY]), key, keyAt, keyLength);
    }
    copyWords(this.bytes, words, 4 * (e + VALUE), value, valueWords, valueAt, valueLength);
    words[e + LENGTH] = valueLength;
    words[e + CAS] = this.writes = this.writes + 1 | 0;
    return OK;
  }
}

/** Bytes with room for more. */
class Room {
  constructor(size) {
    this.bytes = new Uint8Array(size);
    this.length = 0;
  }

  set(from, at, length) {
    if (length > this.bytes.length) this.bytes = new Uint8Array(2 * length);
    copy(this.bytes, 0, from, at, length);
    this.length = length;
  }

  is(other, at, length) { return this.length === length && same(this.bytes, 0, other, at, length); }
}

/** The headers of a response: those that the upstream sent, and what the filter makes of them. */
class ResponseHeaders {
  constructor() {
    this.fields = [];
    this.length = 0;
    this.upstream = null;
    this.touched = false; // whether the upstream's were changed
  }

  begin(upstream) {
    if (this.upstream !== upstream || this.touched) {
      this.upstream = upstream;
      this.touched = false;
      this.length = 0;
      for (const h of upstream) this.replace(h.name, 0, h.name.length, h.value, 0, h.value.length);
      this.touched = false;
    }
    this.length = upstream.length;
  }

  find(from, names, at, length) {
    for (let i = from; i < this.length; i++) if (this.fields[i].name.is(names, at, length)) return i;
    return -1;
  }

  replace(names, nameAt, nameLength, values, valueAt, valueLength) {
    let i = this.find(0, names, nameAt, nameLength);
    if (i >= 0) {
      this.touched ||= i < this.upstream.length;
      this.remove(i + 1, names, nameAt, nameLength);
    } else {
      i = this.length++;
      if (i === this.fields.length) this.fields.push({name: new Room(64), value: new Room(256)});
      this.fields[i].name.set(names, nameAt, nameLength);
    }
    this.fields[i].value.set(values, valueAt, valueLength);
  }

  remove(from, names, nameAt, nameLength) {
    for (let i = this.find(from, names, nameAt, nameLength); i >= 0; i = this.find(i, names, nameAt, nameLength)) {
      this.touched ||= i < this.upstream.length;
      this.fields.push(this.fields.splice(i, 1)[0]);
      this.length--;
    }
  }

  /** Copies of the fields, as [{name, value}]. */
  list() {
    const bytesOf = b => b.bytes.slice(0, b.length);
    return this.fields.slice(0, this.length).map(f => ({name: bytesOf(f.name), value: bytesOf(f.value)}));
  }
}

/** Headers in the form that the ABI passes them in, from [{name, value}] with Uint8Arrays. */
function encodePairs(headers) {
  let size = 4;
  for (const h of headers) size += 8 + h.name.length + 1 + h.value.length + 1;
  const out = new Uint8Array(size), view = new DataView(out.buffer);
  view.setUint32(0, headers.length, true);
  let lengths = 4, at = 4 + 8 * headers.length;
  for (const h of headers) {
    for (const part of [h.name, h.value]) {
      view.setUint32(lengths, part.length, true);
      out.set(part, at);
      lengths += 4;
      at += part.length + 1;
    }
  }
  return out;
}

/** The upstream's response headers. */
const upstreamHeaders = [[':status', '200'], ['content-type', 'application/json'], ['content-length', '1256'],
  ['date', 'Sat, 21 Nov 2026 12:00:00 GMT'], ['server', 'upstream']].map(([n, v]) => ({name: bytes(n), value: bytes(v)}));

/**
 * Makes a VM of a compiled module, with one root context that has the configuration. It throws if
 * the plugin refuses it.
 *
 * @param {WebAssembly.Module} module
 * @param {{configuration: Uint8Array, clock: FakeClock, properties?: {path: string, value: string}[]}} options
 */
export function newVM(module, {clock, configuration, properties = []}) {
  const shared = new SharedData();
  const given = properties.map(p => ({name: bytes(p.path), value: bytes(p.value)}));
  const rootID = 1;

  let memory, allocate;
  let u8 = new Uint8Array(0), words = new Int32Array(0), view = new DataView(new ArrayBuffer(0));
  let nextID = rootID + 1;
  let current = null; // the stream whose callback runs
  const idle = [];
  let replies = 0;
  const metrics = [];
  let seed = 1;

  // The memory's buffer is another one after it has grown, and the old one has no length any more.
  function refresh() {
    u8 = new Uint8Array(memory.buffer);
    words = new Int32Array(memory.buffer);
    view = new DataView(memory.buffer);
  }

  /** Writes a value to memory that the module allocates. */
  function give(value, length, dataAt, lengthAt) {
    let at = 0;
    if (length > 0) {
      at = allocate(length);
      if (u8.length === 0) refresh();
      copy(u8, at, value, 0, length);
    }
    view.setUint32(dataAt, at, true);
    view.setUint32(lengthAt, length, true);
    return OK;
  }

  /** Writes the value of a name, if a list has it. */
  function giveOf(list, nameAt, nameLength, dataAt, lengthAt) {
    for (let i = 0; i < list.length; i++) {
      const {name, value} = list[i];
      if (name.length === nameLength && same(name, 0, u8, nameAt, nameLength)) return give(value, value.length, dataAt, lengthAt);
    }
    return NOT_FOUND;
  }

  /** The headers that a filter may read now as a list, or null. */
  function readable(type) {
    if (type === 0) return current !== null && current.phase === PHASE_REQUEST ? current.request : null;
    return writable(type)?.list() ?? null;
  }

  const writable = type => type === 2 && current !== null && current.phase === PHASE_RESPONSE ? current.response : null;

  // Each begins with a new view of the memory, if it has grown.
  const env = {
    proxy_log(level, at, length) {
      if (u8.length === 0) refresh();
      if (level >= 3) console.error(text(u8.slice(at, at + length)));
      return OK;
    },
    proxy_get_current_time_nanoseconds(at) {
      if (u8.length === 0) refresh();
      clock.write(view, at);
      return OK;
    },
    proxy_set_tick_period_milliseconds() { return OK; },
    proxy_get_buffer_bytes(type, start, size, dataAt, lengthAt) {
      if (u8.length === 0) refresh();
      if (type !== 7) return NOT_FOUND;
      if (start >>> 0 > configuration.length) return BAD_ARGUMENT;
      const part = configuration.subarray(start, Math.min(start + (size >>> 0), configuration.length));
      return give(part, part.length, dataAt, lengthAt);
    },
    proxy_get_header_map_value(type, nameAt, nameLength, dataAt, lengthAt) {
      if (u8.length === 0) refresh();
      const headers = readable(type);
      return headers === null ? BAD_ARGUMENT : giveOf(headers, nameAt, nameLength, dataAt, lengthAt);
    },
    proxy_get_header_map_pairs(type, dataAt, lengthAt) {
      if (u8.length === 0) refresh();
      const headers = readable(type);
      if (headers === null) return BAD_ARGUMENT;
      const pairs = encodePairs(headers);
      return give(pairs, pairs.length, dataAt, lengthAt);
    },
    proxy_replace_header_map_value(type, nameAt, nameLength, valueAt, valueLength) {
      if (u8.length === 0) refresh();
      const headers = writable(type);
      if (headers === null) return BAD_ARGUMENT;
      headers.replace(u8, nameAt, nameLength, u8, valueAt, valueLength);
      return OK;
    },
    proxy_remove_header_map_value(type, nameAt, nameLength) {
      if (u8.length === 0) refresh();
      const headers = writable(type);
      if (headers === null) return BAD_ARGUMENT;
      headers.remove(0, u8, nameAt, nameLength);
      return OK;
    },
    proxy_send_local_response() {
      if (current === null || current.replied) return BAD_ARGUMENT;
      current.replied = true;
      replies++;
      return OK;
    },
    proxy_get_property(pathAt, pathLength, dataAt, lengthAt) {
      if (u8.length === 0) refresh();
      return giveOf(given, pathAt, pathLength, dataAt, lengthAt);
    },
    proxy_get_shared_data(keyAt, keyLength, dataAt, lengthAt, casAt) {
      if (u8.length === 0) refresh();
      const e = shared.get(u8, keyAt, keyLength);
      if (e === 0) return NOT_FOUND;
      const length = shared.words[e + LENGTH], at = length > 0 ? allocate(length) : 0;
      if (u8.length === 0) refresh();
      copyWords(u8, words, at, shared.bytes, shared.words, 4 * (e + VALUE), length);
      view.setUint32(dataAt, at, true);
      view.setUint32(lengthAt, length, true);
      view.setInt32(casAt, shared.words[e + CAS], true);
      return OK;
    },
    proxy_set_shared_data(keyAt, keyLength, valueAt, valueLength, cas) {
      if (u8.length === 0) refresh();
      return shared.set(u8, keyAt, keyLength, u8, words, valueAt, valueLength, cas);
    },
    proxy_set_effective_context(id) { return id === (current?.id ?? rootID) ? OK : BAD_ARGUMENT; },
    proxy_define_metric(_kind, nameAt, nameLength, idAt) {
      if (u8.length === 0) refresh();
      const name = text(u8.slice(nameAt, nameAt + nameLength));
      let id = metrics.findIndex(m => m.name === name);
      if (id < 0) id = metrics.push({name, value: 0n}) - 1;
      view.setUint32(idAt, id, true);
      return OK;
    },
    proxy_increment_metric(id, by) {
      if (metrics[id] === undefined) return NOT_FOUND;
      metrics[id].value += by;
      return OK;
    },
    proxy_record_metric(id, value) {
      if (metrics[id] === undefined) return NOT_FOUND;
      metrics[id].value = value;
      return OK;
    },
    proxy_done() { return OK; },
  };

  const none = (first, second) => {
    if (u8.length === 0) refresh();
    view.setUint32(first, 0, true);
    view.setUint32(second, 0, true);
    return 0;
  };
  const wasi_snapshot_preview1 = {
    sched_yield() { return 0; },
    proc_exit(code) { throw new Error(`the plugin exits with ${code}`); },
    args_get() { return 0; },
    args_sizes_get: none,
    environ_get() { return 0; },
    environ_sizes_get: none,
    clock_time_get(id, _precision, at) {
      if (u8.length === 0) refresh();
      if (id === 0) clock.write(view, at);
      else view.setBigUint64(at, process.hrtime.bigint(), true);
      return 0;
    },
    fd_write(fd, vectorsAt, count, writtenAt) {
      if (u8.length === 0) refresh();
      let written = 0;
      for (let i = 0; i < count; i++) {
        const at = view.getUint32(vectorsAt + 8 * i, true), length = view.getUint32(vectorsAt + 8 * i + 4, true);
        process.stderr.write(u8.slice(at, at + length));
        written += length;
      }
      view.setUint32(writtenAt, written, true);
      return 0;
    },
    // The same numbers in each run, so that keys fall on the same pages.
    random_get(at, length) {
      if (u8.length === 0) refresh();
      for (let i = 0; i < length; i++) {
        seed ^= seed << 13;
        seed ^= seed >>> 17;
        seed ^= seed << 5;
        u8[at + i] = seed >>> 8;
      }
      return 0;
    },
    poll_oneoff() { return 52; }, // not supported
  };

  const imports = {env, wasi_snapshot_preview1};
  for (const {module: from, name} of WebAssembly.Module.imports(module)) {
    imports[from][name] ??= () => {
      console.error(`the host has no ${name}`);
      return UNIMPLEMENTED;
    };
  }
  const x = new WebAssembly.Instance(module, imports).exports;
  memory = x.memory;
  refresh();
  allocate = x.proxy_on_memory_allocate;
  const onCreate = x.proxy_on_context_create, onRequest = x.proxy_on_request_headers, onResponse = x.proxy_on_response_headers,
    onLog = x.proxy_on_log, onDone = x.proxy_on_done, onDelete = x.proxy_on_delete;

  x._initialize?.();
  onCreate(rootID, 0);
  if (x.proxy_on_vm_start && !x.proxy_on_vm_start(rootID, 0)) throw new Error('the plugin refuses to start');
  if (x.proxy_on_configure && !x.proxy_on_configure(rootID, configuration.length)) {
    throw new Error('the plugin refuses its configuration');
  }

  /**
   * Drives a stream to its end.
   *
   * @param {{name: Uint8Array, value: Uint8Array}[]} request the request's headers
   */
  function stream(request) {
    const s = idle.pop() ?? {id: 0, phase: 0, request: null, response: new ResponseHeaders(), replied: false};
    s.id = nextID;
    nextID = nextID + 1 | 0;
    current = s;
    s.phase = 0;
    s.replied = false;
    onCreate(s.id, rootID);
    s.request = request;
    s.phase = PHASE_REQUEST;
    if (onRequest(s.id, request.length, 1) !== CONTINUE && !s.replied) throw new Error('the plugin has a request wait');
    // A local reply runs the response phase too.
    s.phase = PHASE_RESPONSE;
    s.response.begin(upstreamHeaders);
    onResponse?.(s.id, s.response.length, 0);
    s.phase = 0;
    onLog?.(s.id);
    onDone(s.id);
    onDelete?.(s.id);
    current = null;
    idle.push(s);
  }

  return {
    stream,
    tick() { x.proxy_on_tick?.(rootID); },
    get replies() { return replies; },
  };
}

/**
 * Streams that differ in one header, whose values come in the order that is given, over and over.
 *
 * @param {{vm: ReturnType<typeof newVM>, clock: FakeClock, headers: {name: Uint8Array, value: Uint8Array}[], key: number,
 *   values: Uint8Array[], order: Uint32Array, stepNanos: number}} load key is the header that differs; its values are equally
 *   long; the clock goes on by stepNanos before each stream
 * @returns {(count: number) => void} drives so many streams
 */
export function newLoad({vm, clock, headers, key, values, order, stepNanos}) {
  const width = values[0].length;
  const value = new Uint8Array(width);
  const request = headers.map((h, i) => i === key ? {...h, value} : h);
  // All in one place: objects would be fetched from all over the machine's memory.
  const packed = new Uint8Array(width * values.length);
  values.forEach((v, i) => packed.set(v, i * width));
  const stream = vm.stream;
  let at = 0;
  return count => {
    for (let i = 0; i < count; i++) {
      clock.advance(stepNanos);
      copy(value, 0, packed, order[at] * width, width);
      if (++at === order.length) at = 0;
      stream(request);
    }
  };
}
