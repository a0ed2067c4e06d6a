// Runs all measurements, each in a process of its own, and writes the figures: bench/v8.json, the
// table in bench/README.md, and the plot bench/v8.svg.
//
//   node run.js [--plugin FILE] [--weir FILE] [--rounds N] [--only NAME] [--long MILLIONS] [--dry]
//
// --only measures one group of scenarios, and --dry prints the table and writes nothing.

import {execFileSync} from 'node:child_process';
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {cpus} from 'node:os';
import {parseArgs} from 'node:util';
import {plot, table} from './report.js';
import {groups} from './scenarios.js';
import {median} from './statistics.js';

const here = new URL('.', import.meta.url), bench = new URL('..', here);
const {values: options} = parseArgs({options: {
  plugin: {type: 'string', default: new URL('../dist/weir.wasm', bench).pathname},
  gofloor: {type: 'string', default: new URL('../dist/gofloor.wasm', bench).pathname},
  weir: {type: 'string', default: new URL('../dist/weir', bench).pathname},
  rounds: {type: 'string', default: '41'}, only: {type: 'string'}, long: {type: 'string', default: '0'},
  dry: {type: 'boolean', default: false},
}});
for (const file of [options.plugin, options.gofloor, options.weir]) {
  if (!existsSync(file)) throw new Error(`no ${file}: run make build dist/gofloor.wasm`);
}

/** Runs a file of this folder, and gives what it printed, a JSON value on each line. */
function node(flags, file, ...args) {
  const printed = execFileSync(process.execPath, [...flags, new URL(file, here).pathname, ...args.map(String)], {
    encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'],
  });
  return printed.trim().split('\n').map(line => JSON.parse(line));
}

const say = what => process.stderr.write(`${what}\n`);
const figures = {
  machine: {processor: cpus()[0].model.trim(), processors: cpus().length, node: process.version, v8: process.versions.v8},
  scenarios: [],
};

for (const [name] of groups.filter(g => options.only === undefined || g.includes(options.only))) {
  say(`measuring ${name}`);
  const measured = node([], 'measure.js', options.plugin, options.gofloor, name, options.rounds)[0];
  node([], 'measure.js', options.plugin, options.gofloor, name, options.rounds, '--plain')[0].forEach((s, i) => {
    measured[i].plain = {ratio: s.ratio, goRatio: s.goRatio, toFirst: s.toFirst, moreNanos: s.moreNanos, nanos: s.nanos};
  });
  figures.scenarios.push(...measured);
}
if (options.only === undefined) {
  figures.sync = [1000, 50000, 'batches'].map(keys => {
    say(`measuring synchronisation, ${keys} keys`);
    return {name: keys === 'batches' ? '64 batches' : `${keys.toLocaleString('en')} keys`, ...node([], 'sync.js', options.plugin, options.weir, keys)[0]};
  });
  say('measuring the start');
  const starts = flags => Array.from({length: 9}, () => node(flags, 'startup.js', options.plugin)[0]);
  const middles = all => ({
    compileMillis: median(all.map(s => s.compileMillis)), configuredMillis: median(all.map(s => s.configuredMillis)),
  });
  const lazy = starts([]);
  const [, million] = node([], 'startup.js', options.plugin, 1e6);
  figures.start = {
    bytes: lazy[0].bytes, memoryBytes: lazy[0].memoryBytes, memoryBytesAfterMillion: million.memoryBytes,
    lazy: middles(lazy), eager: middles(starts(['--no-wasm-lazy-compilation'])),
  };
}
if (Number(options.long) > 0) {
  say(`driving ${options.long} million streams`);
  figures.long = node([], 'startup.js', options.plugin, 1e6 * Number(options.long)).slice(1);
}

const text = table(figures);
process.stdout.write(text);
if (!options.dry) {
  const file = name => new URL(name, bench);
  if (figures.long === undefined && existsSync(file('v8.json'))) {
    // A long run is not made every time.
    figures.long = JSON.parse(readFileSync(file('v8.json'), 'utf8')).long;
  }
  writeFileSync(file('v8.json'), `${JSON.stringify(figures, null, 1)}\n`);
  writeFileSync(file('v8.svg'), plot(figures));
  const readme = readFileSync(file('README.md'), 'utf8');
  const [begin, end] = ['<!-- figures of v8/run.js -->\n', '<!-- end of figures -->\n'];
  const parts = readme.split(begin);
  if (parts.length !== 2 || !parts[1].includes(end)) throw new Error(`bench/README.md lacks ${begin.trim()} and ${end.trim()}`);
  writeFileSync(file('README.md'), parts[0] + begin + table(figures) + parts[1].slice(parts[1].indexOf(end)));
}
