// Measures what whole streams take on this machine's V8, of one build of the plugin or of several in
// turns, and prints a table.
//
//   node measure.js PLUGIN.wasm [OTHER.wasm…] [--only NAME] [--rounds N]

import {parseArgs} from 'node:util';
import {readModule, start} from './plugin.js';
import {named} from './scenarios.js';

const {positionals: files, values: {only, rounds}} = parseArgs({
  allowPositionals: true, options: {only: {type: 'string', default: ''}, rounds: {type: 'string', default: '41'}},
});
const blockNanos = 7e6, warmupNanos = 1.5e9;

/** The nearest of some values. */
function quantile(values, q) {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

/** Nanoseconds that each of count streams takes. */
function time(vm, count) {
  const begin = process.hrtime.bigint();
  vm.run(count);
  return Number(process.hrtime.bigint() - begin) / count;
}

/** The times of a stream in each round, of each module. */
async function measure(modules, name) {
  const vms = await Promise.all(modules.map(m => start(m.module, name)));
  for (const begin = process.hrtime.bigint(); Number(process.hrtime.bigint() - begin) < warmupNanos * vms.length;) {
    for (const vm of vms) vm.run(500);
  }
  const blocks = vms.map(vm => Math.max(1, Math.round(blockNanos / time(vm, 5000))));
  // Rounds in which the machine gave the processor to something else say little. They count only if
  // there are hardly any others.
  const preemptions = () => process.resourceUsage().involuntaryContextSwitches;
  const clean = [], disturbed = [];
  for (let i = 0; clean.length < rounds && i < 6 * rounds; i++) {
    const before = preemptions(), taken = [];
    // Another one begins each round, so that nobody always comes after the same.
    for (let j = 0; j < vms.length; j++) {
      const at = (i + j) % vms.length;
      taken[at] = time(vms[at], blocks[at]);
    }
    for (const vm of vms) vm.tick();
    (preemptions() === before ? clean : disturbed).push(taken);
  }
  const counted = clean.length >= 9 ? clean : [...clean, ...disturbed];
  return modules.map((_, at) => counted.map(round => round[at]));
}

if (files.length === 0) throw new Error('want PLUGIN.wasm');
const modules = files.map(readModule);
for (const {build} of modules) console.log(build);
console.log(`\n${'ns of a stream: median, 10–90 %'.padEnd(32)}${modules.map((_, i) => i === 0 ? '' : '   times the first, 10–90 %').join('')}`);
const spread = (values, digits) => [0.5, 0.1, 0.9].map(q => quantile(values, q).toFixed(digits));
for (const name of named(only)) {
  const taken = await measure(modules, name);
  const cells = taken.map((nanos, i) => {
    const [middle, low, high] = spread(nanos, 0);
    const ratio = spread(nanos.map((n, round) => n / taken[0][round]), 2);
    return `${middle.padStart(7)} ${`${low}–${high}`.padStart(11)}${i === 0 ? '' : `  ${ratio[0]} (${ratio[1]}–${ratio[2]})`}`;
  });
  console.log(name.padEnd(32) + cells.join('  '));
}
