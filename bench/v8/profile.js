// Profiles the plugin in one scenario, and prints what takes the time: the functions of the module,
// and those of the host.
//
//   node profile.js PLUGIN.wasm SCENARIO [SECONDS] [--cpuprofile FILE]
//
// The plugin needs its names: make dist/weir-names.wasm.

import {writeFileSync} from 'node:fs';
import {Session} from 'node:inspector/promises';
import {parseArgs} from 'node:util';
import {readModule, start} from './plugin.js';
import {named} from './scenarios.js';

const {positionals: [plugin, name, seconds = '5'], values: {cpuprofile}} = parseArgs({
  allowPositionals: true, options: {cpuprofile: {type: 'string'}},
});
const {module, build} = readModule(plugin);
const vm = await start(module, named(name)[0]);
function runFor(nanos) {
  const begin = process.hrtime.bigint();
  let streams = 0;
  for (; Number(process.hrtime.bigint() - begin) < nanos; streams += 1000) vm.run(1000);
  return Number(process.hrtime.bigint() - begin) / streams;
}
runFor(2e9);

const session = new Session();
session.connect();
await session.post('Profiler.enable');
await session.post('Profiler.setSamplingInterval', {interval: 200});
await session.post('Profiler.start');
const each = runFor(Number(seconds) * 1e9);
const {profile} = await session.post('Profiler.stop');
if (cpuprofile !== undefined) writeFileSync(cpuprofile, JSON.stringify(profile));

const nodes = new Map(profile.nodes.map(n => [n.id, {...n, ...describe(n.callFrame)}]));
for (const n of nodes.values()) for (const child of n.children ?? []) nodes.get(child).parent = n;
const self = new Map(), total = new Map(), parts = new Map();
const add = (map, key, time) => map.set(key, (map.get(key) ?? 0) + time);
let all = 0;
profile.samples.forEach((id, i) => {
  const time = profile.timeDeltas[i], node = nodes.get(id);
  all += time;
  add(self, node.label, time);
  add(parts, node.part, time);
  const seen = new Set();
  for (let n = node; n !== undefined; n = n.parent) {
    if (!seen.has(n.label)) add(total, n.label, time);
    seen.add(n.label);
  }
});

/** A function's name, and whose it is. Module functions go by their packages. */
function describe({functionName, url}) {
  if (functionName.startsWith('(')) return {part: 'V8', label: functionName};
  if (!url.startsWith('wasm:')) return {part: 'host', label: `host  ${functionName || '(anonymous)'}`};
  const [, name] = /^([a-z]+\.(?:com|org|net|io|dev)_[^.]*|[^.]*)\./.exec(functionName) ?? [];
  return {part: `module  ${name ?? '(calls in and out)'}`, label: `module  ${functionName}`};
}

const share = t => `${(100 * t / all).toFixed(1).padStart(5)} %  ${(each * t / all).toFixed(0).padStart(6)} ns`;
const sorted = map => [...map].sort((a, b) => b[1] - a[1]);
console.log(`${build}\n${name}: ${each.toFixed(0)} ns for each stream, while profiled`);
console.log('\nby package');
for (const [part, t] of sorted(parts)) console.log(`${share(t)}  ${part}`);
console.log('\nby function, without and with what it calls');
for (const [label, t] of sorted(self).slice(0, 40)) console.log(`${share(t)}  ${share(total.get(label))}  ${label}`);
console.log('\nby function, with what it calls');
for (const [label, t] of sorted(total).slice(0, 40)) console.log(`${share(t)}  ${label}`);
