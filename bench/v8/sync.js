// Measures what synchronising costs the thread that serves requests, against a real backend in real
// time, and prints the figures as JSON.
//
//   node sync.js PLUGIN.wasm WEIR KEYS|batches [CYCLES] [--leases] [--delay MILLIS]
//
// A cycle has one request for each of so many keys, as fast as they go, and then waits until the
// plugin is quiet. With "batches" there are as many keys as fill 64 callouts.
//
// The backend counts leases too, before they are used. So the limits have a window so short that a
// key's last push is long ago when it is hit again: then no key gets a lease, each hit is pushed,
// and the backend's sum must grow by one for each request. With --leases keys keep coming back
// within a long window: in the first cycle they push, in the next they ask for a lease as well, and
// then they use it, review it and give it back. The backend's sum must then never be less than the
// requests.
//
// --delay has each answer take so much longer, as one from another machine does.
//
// At the end the plugin context goes, and gives back what is leased: what the backend has then is
// what the requests took, exactly.

import {spawn} from 'node:child_process';
import {readFileSync} from 'node:fs';
import http from 'node:http';
import {createInterface} from 'node:readline';
import {parseArgs} from 'node:util';
import {RealClock, bytes, newVM} from './host.js';
import {requestHeaders, users} from './scenarios.js';
import {median} from './statistics.js';

const {positionals: [plugin, weir, what, cyclesText = '6'], values: {leases, delay}} = parseArgs({
  allowPositionals: true, options: {leases: {type: 'boolean', default: false}, delay: {type: 'string', default: '0'}},
});
// With leases no cycle is like the one before it, so that all are measured.
const warmup = leases ? 0 : 3, cycles = Number(cyclesText);
const wantedBatches = 64;
const quietMillis = 1500; // half as long again as the interval of synchronisation

const now = () => Number(process.hrtime.bigint()) / 1e6; // milliseconds

/** Starts a backend on a free port, and gives its address. */
async function startBackend() {
  const backend = spawn(weir, ['serve', '--listen', '127.0.0.1:0'], {stdio: ['ignore', 'ignore', 'pipe']});
  process.on('exit', () => backend.kill());
  for await (const line of createInterface(backend.stderr)) {
    const address = /address=(\S+)/.exec(line)?.[1];
    if (address !== undefined) {
      backend.stderr.resume();
      return {address, stop: () => backend.kill()};
    }
  }
  throw new Error('weir serve ends before it listens');
}

const backend = await startBackend();
const [hostname, port] = backend.address.split(':');
const agent = new http.Agent({keepAlive: true});

/**
 * What the backend has counted since it began: hits, without those that were given back, and items
 * of pushes.
 */
function counted() {
  return new Promise((resolve, reject) => {
    http.get({hostname, port, agent, path: '/metrics'}, answer => {
      let page = '';
      const metric = name => Number(new RegExp(`^weir_${name} (\\S+)`, 'm').exec(page)?.[1]);
      answer.setEncoding('utf8').on('data', part => page += part).on('end', () => {
        resolve({
          hits: metric('hits_applied_total') - metric('hits_returned_total'), dropped: metric('hits_dropped_total'),
          items: metric('push_items_total'),
        });
      });
    }).on('error', reject);
  });
}

let callbacks = []; // of a cycle
let callouts = 0, calloutBytes = 0, flying = 0, failures = 0, lastAt = 0, firstAt = 0;

/** How often the machine has taken the processor away from this process. */
const preemptions = () => process.resourceUsage().involuntaryContextSwitches;

/** Milliseconds for which this process has had a processor, all its threads together. */
function worked() {
  const {user, system} = process.cpuUsage();
  return (user + system) / 1000;
}

/**
 * Notes how long a callback takes; where the machine has taken the processor away meanwhile, a
 * bound of that.
 */
function timed(kind, callback) {
  const preempted = preemptions();
  const before = worked();
  const start = now();
  callback();
  const millis = now() - start;
  const bound = Math.min(millis, worked() - before);
  callbacks.push({kind, millis: bound, preempted: preemptions() !== preempted});
}

const longest = all => all.reduce((a, b) => b.millis > a.millis ? b : a, {kind: 'none', millis: 0});

/**
 * Takes a callout. What it costs Node to make the request must not count as the plugin's, so that
 * comes later.
 */
function onCallout(callout) {
  callouts++;
  calloutBytes += callout.body.length;
  flying++;
  firstAt ||= now();
  setImmediate(send, callout);
  return true;
}

function send({id, headers, body, timeoutMillis}) {
  const fields = headers.filter(([name]) => !name.startsWith(':'));
  const pseudo = Object.fromEntries(headers.filter(([name]) => name.startsWith(':')));
  const end = answer => {
    if (request.done) return;
    request.done = true;
    if (Number(delay) > 0) setTimeout(deliver, Number(delay), answer);
    else deliver(answer);
  };
  const deliver = answer => {
    flying--;
    lastAt = now();
    if (answer === null) failures++;
    timed('answer', () => vm.answer(id, answer));
  };
  const request = http.request({
    hostname, port, agent, method: pseudo[':method'], path: pseudo[':path'],
    headers: {...Object.fromEntries(fields), host: pseudo[':authority'], 'content-length': body.length},
  }, answer => {
    const parts = [];
    answer.on('data', part => parts.push(part)).on('end', () => end({
      headers: [[':status', String(answer.statusCode)], ...Object.entries(answer.headers)]
        .map(([name, value]) => ({name: bytes(name), value: bytes(String(value))})),
      body: new Uint8Array(Buffer.concat(parts)),
    }));
  });
  request.setTimeout(timeoutMillis, () => request.destroy());
  request.on('error', () => end(null));
  request.end(body);
}

let timer;
function onTickPeriod(millis) {
  clearTimeout(timer);
  if (millis > 0) {
    timer = setTimeout(() => {
      onTickPeriod(millis);
      timed('tick', () => vm.tick());
    }, millis);
  }
}

const vm = newVM(new WebAssembly.Module(readFileSync(plugin)), {
  clock: new RealClock(), onCallout, onTickPeriod,
  configuration: bytes(JSON.stringify({
    namespace: 'bench', sync_rate: 1, backend: {cluster: 'backend', timeout: '5s'}, capacity: 1 << 18,
    rules: [{name: 'per-user', key: [{header: 'x-user'}], limits: [{limit: 1000000, window: leases ? '1h' : '4s'}]}],
  })),
});

const pause = millis => new Promise(resolve => { setTimeout(resolve, millis); });
const breathe = () => new Promise(resolve => { setImmediate(resolve); });

/** Waits until the plugin has been quiet for longer than an interval. */
async function quiet() {
  lastAt = now();
  while (flying > 0 || vm.waiting > 0 || now() - lastAt < quietMillis) await pause(50);
}

let requests = 0; // in all cycles

/** Hits each of the keys once, and waits until the plugin has pushed that. */
async function cycle(keys) {
  callbacks = [];
  callouts = calloutBytes = failures = firstAt = 0;
  const before = await counted();
  const request = requestHeaders.map(h => ({...h}));
  const begin = now();
  const serving = []; // milliseconds of each 200 requests
  for (let i = 0; i < keys.length; i += 200) {
    const start = now();
    for (let j = i; j < Math.min(i + 200, keys.length); j++) {
      request.at(-1).value = keys[j];
      vm.stream(request);
    }
    serving.push(now() - start);
    await breathe();
  }
  const end = now();
  requests += keys.length;
  await quiet();
  const after = await counted();
  if (vm.replies > 0) throw new Error(`${vm.replies} requests were refused`);
  if (leases ? after.hits < requests : after.hits !== requests) {
    throw new Error(`of ${requests} hits, ${keys.length} of this cycle, the backend has ${after.hits}`);
  }
  // Ticks with nothing to do are the most; what counts is the time that they all take.
  return {
    requestMicros: 1000 * median(serving) / Math.min(200, keys.length),
    // Callbacks while which something else ran on the processor say less of the plugin.
    longest: longest(callbacks.filter(c => !c.preempted)),
    longestOfAll: longest(callbacks),
    preempted: callbacks.filter(c => c.preempted).length, callbacks: callbacks.length,
    keyMicros: 1000 * callbacks.reduce((sum, c) => sum + c.millis, 0) / keys.length,
    burstMillis: end - begin,
    pushedMillis: lastAt - end,
    pushingMillis: lastAt - firstAt,
    callouts, calloutBytes, failures,
    items: after.items - before.items, memoryBytes: vm.memoryBytes,
  };
}

// A proxy that has just started asks before it lets anything pass: it must have heard how many
// nodes there are.
const startMemoryBytes = vm.memoryBytes;
await quiet();
let count = Number(what);
if (what === 'batches') {
  const first = await cycle(users(20000));
  count = Math.ceil(wantedBatches * 20000 / first.callouts);
}
const keys = users(count);
for (let i = 0; i < warmup; i++) await cycle(keys);
const all = [];
for (let i = 0; i < cycles; i++) all.push(await cycle(keys));
if (!vm.done()) await quiet();
const {hits, dropped} = await counted();
if (hits !== requests || dropped !== 0) throw new Error(`of ${requests} hits the backend has ${hits} at the end; ${dropped} came too late`);
const middle = (...path) => median(all.map(c => path.reduce((value, field) => value[field], c)));
process.stdout.write(JSON.stringify({
  keys: count, cycles,
  requestMicros: middle('requestMicros'),
  keyMicros: middle('keyMicros'),
  longest: {
    millis: middle('longest', 'millis'), requests: median(all.map(c => 1000 * c.longest.millis / c.requestMicros)),
    worstMillis: Math.max(...all.map(c => c.longest.millis)), kinds: [...new Set(all.map(c => c.longest.kind))].sort(),
  },
  longestWithPreemptedMillis: middle('longestOfAll', 'millis'),
  preempted: middle('preempted'), callbacks: middle('callbacks'),
  burstMillis: middle('burstMillis'),
  pushedMillis: middle('pushedMillis'),
  pushingMillis: middle('pushingMillis'),
  callouts: middle('callouts'), calloutBytes: middle('calloutBytes'), failures: middle('failures'),
  itemsOfCallout: median(all.map(c => c.items / Math.max(1, c.callouts))),
  startMemoryBytes, memoryBytes: vm.memoryBytes,
  ...leases && {each: all},
}));
backend.stop();
process.exit(0);
