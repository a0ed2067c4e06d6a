// Measures what synchronising costs the thread that serves requests, against a real backend in real time, and prints the figures
// as JSON.
//
//   node sync.js PLUGIN.wasm WEIR KEYS|batches [CYCLES]
//
// A cycle has one request for each of so many keys, as fast as they go, and then waits until the plugin is quiet. With "batches"
// there are as many keys as fill 64 callouts.

import {spawn} from 'node:child_process';
import {readFileSync} from 'node:fs';
import http from 'node:http';
import {createInterface} from 'node:readline';
import {RealClock, bytes, newVM} from './host.js';
import {requestHeaders, users} from './scenarios.js';
import {median} from './statistics.js';

const [plugin, weir, what, cyclesText = '6'] = process.argv.slice(2);
const warmup = 3, cycles = Number(cyclesText);
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

/** The number of hits that the backend has applied. */
function applied() {
  return new Promise((resolve, reject) => {
    http.get({hostname, port, agent, path: '/metrics'}, answer => {
      let page = '';
      answer.setEncoding('utf8').on('data', part => page += part).on('end', () => {
        resolve(Number(/^weir_hits_applied_total (\S+)/m.exec(page)?.[1]));
      });
    }).on('error', reject);
  });
}

let callbacks = []; // of a cycle
let callouts = 0, calloutBytes = 0, flying = 0, failures = 0, lastAt = 0, firstAt = 0;

/** How often the machine has taken the processor away from this process. */
const preemptions = () => process.resourceUsage().involuntaryContextSwitches;

function timed(kind, callback) {
  const preempted = preemptions();
  const start = now();
  callback();
  const millis = now() - start;
  callbacks.push({kind, millis, preempted: preemptions() !== preempted});
}

const longest = all => all.reduce((a, b) => b.millis > a.millis ? b : a, {kind: 'none', millis: 0});

/** Takes a callout. What it costs Node to make the request must not count as the plugin's, so that comes later. */
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
    rules: [{name: 'per-user', key: [{header: 'x-user'}], limits: [{limit: 1000000, window: '1h'}]}],
  })),
});

const pause = millis => new Promise(resolve => { setTimeout(resolve, millis); });
const breathe = () => new Promise(resolve => { setImmediate(resolve); });

/** Hits each of the keys once, and waits until the plugin has been quiet for longer than an interval. */
async function cycle(keys) {
  callbacks = [];
  callouts = calloutBytes = failures = firstAt = 0;
  const before = await applied();
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
  lastAt = now();
  const end = lastAt;
  while (flying > 0 || vm.waiting > 0 || now() - lastAt < quietMillis) await pause(50);
  const arrived = await applied() - before;
  if (arrived !== keys.length) throw new Error(`${arrived} of ${keys.length} hits have arrived at the backend`);
  // Ticks with nothing to do are the most; what counts is the time that they all take.
  return {
    requestMicros: 1000 * median(serving) / Math.min(200, keys.length),
    // Callbacks while which something else ran on the processor say little of the plugin.
    longest: longest(callbacks.filter(c => !c.preempted)),
    longestOfAll: longest(callbacks),
    preempted: callbacks.filter(c => c.preempted).length, callbacks: callbacks.length,
    keyMicros: 1000 * callbacks.reduce((sum, c) => sum + c.millis, 0) / keys.length,
    burstMillis: end - begin,
    pushedMillis: lastAt - end,
    pushingMillis: lastAt - firstAt,
    callouts, calloutBytes, failures,
  };
}

let count = Number(what);
if (what === 'batches') {
  const first = await cycle(users(20000));
  count = Math.ceil(wantedBatches * 20000 / first.callouts);
}
const keys = users(count);
for (let i = 0; i < warmup; i++) await cycle(keys);
const all = [];
for (let i = 0; i < cycles; i++) all.push(await cycle(keys));
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
  memoryBytes: vm.memoryBytes,
}));
backend.stop();
process.exit(0);
