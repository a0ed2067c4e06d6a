// The host does what Envoy's does, as far as the benchmarks rely on it.

import assert from 'node:assert/strict';
import test from 'node:test';
import wabt from 'wabt';
import {assemble, floorConfiguration} from './floor.js';
import {FakeClock, SharedData, bytes, decodePairs, encodePairs, newLoad, newVM, text} from './host.js';
import {requestHeaders, shuffled} from './scenarios.js';

const clock = () => new FakeClock(1795255200000000000n);
const page = bytes('page-000');

function get(data, key) {
  const e = data.read(key);
  return e && {...e, value: text(e.value)};
}

test('shared data compares and sets', () => {
  const data = new SharedData();
  const key = bytes('a'), other = bytes('b');
  const set = (k, value, cas) => data.set(k, 0, k.length, bytes(value), null, 0, value.length, cas);
  assert.equal(get(data, key), null);
  assert.equal(set(key, 'one', 77), 0, 'any number creates');
  assert.deepEqual(get(data, key), {value: 'one', cas: 1});
  assert.equal(set(other, 'x', 0), 0);
  assert.equal(set(key, 'lost', 2), 8, 'a wrong number is refused');
  assert.equal(set(key, 'two and longer than a short one is, by far', 1), 0);
  assert.deepEqual(get(data, key), {value: 'two and longer than a short one is, by far', cas: 3}, 'numbers are the process\'s');
  assert.equal(set(key, 'blind', 0), 0, '0 overwrites');
  assert.deepEqual(get(data, key), {value: 'blind', cas: 4});
});

test('shared data finds all keys when it has grown', () => {
  const data = new SharedData();
  for (let i = 0; i < 50000; i++) data.put(bytes(`key ${i}`), bytes(String(i)));
  for (let i = 0; i < 50000; i++) assert.equal(get(data, bytes(`key ${i}`)).value, String(i));
});

test('headers survive the form of the ABI', () => {
  const headers = [[':status', '200'], ['x', ''], ['y', 'z']].map(([name, value]) => ({name: bytes(name), value: bytes(value)}));
  assert.deepEqual(decodePairs(encodePairs(headers)), headers);
});

test('a clock carries over', () => {
  const c = new FakeClock(0x1fffffffen), view = new DataView(new ArrayBuffer(8));
  c.advance(10);
  c.write(view, 0);
  assert.equal(view.getBigUint64(0, true), 0x200000008n);
});

test('orders are permutations', () => {
  assert.deepEqual([...shuffled(1000)].sort((a, b) => a - b), Array.from({length: 1000}, (_, i) => i));
});

async function start(configuration, sharedData = new SharedData()) {
  const vm = newVM(new WebAssembly.Module(await assemble('floor')), {
    configuration: floorConfiguration(configuration), clock: clock(), sharedData, count: true,
  });
  const run = newLoad({vm, clock: clock(), headers: requestHeaders, key: requestHeaders.length - 1, values: [bytes('ann')],
    order: new Uint32Array(1), stepNanos: 1});
  return {vm, run};
}

const decision = {
  clock: true, keyHeader: bytes('x-user'), pages: 1, pageNames: 1, pageName: page.slice(), writes: true,
  headers: [{name: bytes('x-left'), value: bytes('9')}, {name: bytes('server'), value: bytes('floor')}],
};

test('the floor makes the least calls, and counts', async () => {
  const data = new SharedData();
  const name = page.slice();
  name.set([0, 0, 0], name.length - 3);
  data.put(name, new Uint8Array(40));
  const {vm, run} = await start({...decision, pageName: name}, data);
  for (const call in vm.counts) vm.counts[call] = 0;
  run(3);
  assert.deepEqual(Object.fromEntries(Object.entries(vm.counts).filter(([, n]) => n > 0)), {
    proxy_get_current_time_nanoseconds: 3, proxy_get_header_map_value: 3, proxy_get_shared_data: 3, proxy_set_shared_data: 3,
    proxy_replace_header_map_value: 6,
  });
  assert.equal(data.read(name).value[8], 3, 'each request is counted once');
  assert.deepEqual(vm.last().headers.map(h => [text(h.name), text(h.value)]), [['x-left', '9']], 'the other one was replaced');
  assert.equal(vm.last().reply, null);
});

test('the floor makes a page that is not there', async () => {
  const data = new SharedData();
  const name = page.slice();
  name.set([0, 0, 0], name.length - 3);
  const {run} = await start({...decision, pageName: name, pageSize: 40}, data);
  run(3);
  assert.equal(data.read(name).value.length, 40);
  assert.equal(data.read(name).value[8], 3);
});

test('the floor replies', async () => {
  const pairs = encodePairs([{name: bytes('retry-after'), value: bytes('3')}]);
  const {vm, run} = await start({...decision, pages: 0, headers: [],
    reply: {status: 429, details: bytes('why'), body: bytes('no'), pairs}});
  run(2);
  assert.equal(vm.replies, 2);
  assert.equal(vm.streams, 2, 'a stream that was replied to ends');
  const {reply} = vm.last();
  assert.deepEqual([reply.status, text(reply.details), text(reply.body), reply.pairs], [429, 'why', 'no', pairs]);
});

// Pauses each stream; a tick lets the first one go on. Reads a request header in the response
// phase, and traps if that works.
const pausing = `(module
  (import "env" "proxy_set_effective_context" (func $context (param i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  (import "env" "proxy_get_header_map_value" (func $header (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "x-user")
  (global $first (mut i32) (i32.const 0))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 1024))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_tick") (param i32)
    (if (call $context (global.get $first)) (then unreachable))
    (if (call $continue (i32.const 0)) (then unreachable)))
  (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
    (if (call $header (i32.const 0) (i32.const 64) (i32.const 6) (i32.const 0) (i32.const 4)) (then unreachable))
    (if (i32.eqz (global.get $first)) (then (global.set $first (local.get $id))))
    (i32.const 1))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (if (i32.ne (call $header (i32.const 0) (i32.const 64) (i32.const 6) (i32.const 0) (i32.const 4)) (i32.const 2))
      (then unreachable))
    (i32.const 0))
  (func (export "proxy_on_done") (param i32) (result i32) (i32.const 1))
  (func (export "proxy_on_delete") (param i32)))`;

test('paused streams wait until the filter lets them go on', async () => {
  const module = (await wabt()).parseWat('pausing.wat', pausing).toBinary({}).buffer;
  const vm = newVM(new WebAssembly.Module(module), {configuration: bytes(''), clock: clock()});
  vm.stream(requestHeaders);
  vm.stream(requestHeaders);
  assert.deepEqual([vm.waiting, vm.streams], [2, 0]);
  vm.tick();
  assert.deepEqual([vm.waiting, vm.streams], [1, 1]);
});
