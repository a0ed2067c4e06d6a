// The host does what Envoy's does, as far as the benchmarks rely on it.

import assert from 'node:assert/strict';
import test from 'node:test';
import {FakeClock, SharedData, bytes, text} from './host.js';
import {shuffled} from './scenarios.js';

function get(data, key) {
  const e = data.get(key, 0, key.length);
  return e && {value: text(data.bytes.slice(4 * (e + 4), 4 * (e + 4) + data.words[e + 1])), cas: data.words[e]};
}

const put = (data, key, value, cas) => {
  const words = new Int32Array(16), from = new Uint8Array(words.buffer);
  from.set(bytes(value));
  return data.set(key, 0, key.length, from, words, 0, value.length, cas);
};

test('shared data compares and sets', () => {
  const data = new SharedData();
  const key = bytes('a'), other = bytes('b'), set = (...what) => put(data, ...what);
  assert.equal(get(data, key), 0);
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
  for (let i = 0; i < 50000; i++) put(data, bytes(`key ${i}`), String(i), 0);
  for (let i = 0; i < 50000; i++) assert.equal(get(data, bytes(`key ${i}`)).value, String(i));
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
