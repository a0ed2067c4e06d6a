// Measures the scenarios of one group in this process, and prints the figures as JSON.
//
//   node measure.js PLUGIN.wasm GOFLOOR.wasm GROUP [ROUNDS] [--plain]

import {readFileSync} from 'node:fs';
import {parseArgs} from 'node:util';
import {subjects} from './subjects.js';
import {groups} from './scenarios.js';
import {median, quantile} from './statistics.js';

const {positionals: [plugin, goFloor, name, roundsText = '41'], values: {plain}} = parseArgs({
  allowPositionals: true, options: {plain: {type: 'boolean', default: false}},
});
const group = groups.find(g => g[0] === name);
const rounds = Number(roundsText);
const blockNanos = 7e6, warmupNanos = 1.5e9;

const now = () => Number(process.hrtime.bigint());

/** Nanoseconds that count streams take. */
function time(subject, count) {
  const start = now();
  subject.run(count);
  return now() - start;
}

const all = await subjects(readFileSync(plugin), readFileSync(goFloor), group, plain);
const everything = all.flatMap(s => [s.weir, s.floor, s.nothing, ...(s.goFloor ? [s.goFloor] : [])]);

for (let spent = 0; spent < warmupNanos;) for (const s of everything) spent += time(s, 500) / everything.length;
for (const s of everything) {
  const each = Math.min(...Array.from({length: 9}, () => time(s, 500) / 500));
  s.block = Math.max(1, Math.round(blockNanos / each));
}
// Rounds in which the machine gave the processor to something else say little. They are made again,
// though not for ever, and count only if there are hardly any others.
const preemptions = () => process.resourceUsage().involuntaryContextSwitches;
const fewest = 9;
const clean = [], disturbed = [];
while (clean.length < rounds && clean.length + disturbed.length < 6 * rounds) {
  const before = preemptions();
  const start = clean.length + disturbed.length;
  for (let i = 0; i < everything.length; i++) {
    // Another one begins each round, so that nobody always comes after the same.
    const s = everything[(i + start) % everything.length];
    s.latest = time(s, s.block) / s.block;
  }
  for (const s of all) {
    s.check();
    s.weir.vm.tick();
  }
  (preemptions() === before ? clean : disturbed).push(everything.map(s => s.latest));
}
const counted = clean.length >= fewest ? clean : [...clean, ...disturbed];
everything.forEach((s, i) => { s.nanos = counted.map(round => round[i]); });

const spread = values => ({median: median(values), low: quantile(values, 0.1), high: quantile(values, 0.9)});
const pairs = (a, b, f) => a.nanos.map((x, i) => f(x, b.nanos[i]));

process.stdout.write(JSON.stringify(all.map((s, i) => ({
  name: s.name,
  title: s.title,
  ratio: spread(pairs(s.weir, s.floor, (a, b) => a / b)),
  moreNanos: spread(pairs(s.weir, s.floor, (a, b) => a - b)),
  ...(s.goFloor ? {goRatio: spread(pairs(s.goFloor, s.floor, (a, b) => a / b))} : {}),
  nanos: {weir: median(s.weir.nanos), floor: median(s.floor.nanos), nothing: median(s.nothing.nanos)},
  // The time of the group's other scenarios relative to the first, which ran in turns with them.
  ...(i > 0 ? {toFirst: {name: all[0].name, ...spread(pairs(s.weir, all[0].weir, (a, b) => a / b))}} : {}),
  calls: s.calls,
  floorCalls: s.floorCalls,
  pageBytes: s.pageBytes,
  rounds: counted.length, disturbed: disturbed.length,
}))));
