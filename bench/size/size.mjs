// Says which packages make up the plugin: the sizes of their functions, by the names of a module
// that has them, and what is more of each than in an empty plugin.
//
//   node bench/size/size.mjs [NAMED.wasm]
//
// Without a module it builds one, with names, from this repository.

import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';

const repository = new URL('../..', import.meta.url).pathname;
const run = (command, args, more = {}) => execFileSync(command, args, {
  cwd: repository, encoding: 'utf8', maxBuffer: 1 << 28, env: {...process.env, ...more},
});

function build(file) {
  run('make', ['-s', file]);
  return readFileSync(`${repository}/${file}`);
}

/** Reads numbers and names of a module. */
class Reader {
  constructor(data, at = 0) { Object.assign(this, {data, at}); }
  u32() {
    let n = 0;
    for (let shift = 0; ; shift += 7) {
      const b = this.data[this.at++];
      n += (b & 127) * 2 ** shift;
      if (b < 128) return n;
    }
  }
  name() {
    const length = this.u32();
    this.at += length;
    return new TextDecoder().decode(this.data.subarray(this.at - length, this.at));
  }
}

const sectionNames = ['custom', 'type', 'import', 'function', 'table', 'memory', 'global', 'export', 'start', 'element', 'code', 'data'];

/** Sizes of a module's sections, and of its functions by name. */
function dissect(module) {
  const reader = new Reader(module, 8);
  const sections = {}, bodies = [], names = new Map();
  let imported = 0;
  while (reader.at < module.length) {
    const id = module[reader.at++];
    const size = reader.u32(), end = reader.at + size;
    let label = sectionNames[id] ?? `section ${id}`;
    if (id === 0) {
      label = `custom ${reader.name()}`;
      while (label === 'custom name' && reader.at < end) {
        const kind = module[reader.at++], partEnd = reader.u32() + reader.at;
        if (kind === 1) {
          for (let n = reader.u32(); n > 0; n--) {
            const index = reader.u32();
            names.set(index, reader.name());
          }
        }
        reader.at = partEnd;
      }
    } else if (id === 2) {
      imported = WebAssembly.Module.imports(new WebAssembly.Module(module)).filter(i => i.kind === 'function').length;
    } else if (id === 10) {
      for (let n = reader.u32(); n > 0; n--) {
        const start = reader.at, length = reader.u32();
        reader.at += length;
        bodies.push(reader.at - start);
      }
    }
    sections[label] = (sections[label] ?? 0) + size;
    reader.at = end;
  }
  return {sections, functions: bodies.map((size, i) => ({name: names.get(imported + i) ?? '(no name)', size}))};
}

const module = process.argv[2] === undefined ? build('dist/weir-names.wasm') : readFileSync(process.argv[2]);
const empty = build('dist/empty-names.wasm');
const [plugin, floor] = [module, empty].map(dissect);
if (!plugin.functions.some(f => f.name.startsWith('runtime.'))) throw new Error('the module has no names: build it without -ldflags=-s');

// A function's name has its package before it, with _ for what is no letter, digit or dot.
const packages = run('go', ['list', '-deps', '-f', '{{.ImportPath}}', '.'], {GOOS: 'wasip1', GOARCH: 'wasm'}).trim().split('\n')
  .map(path => ({path, prefix: path.replace(/[^\w.]/g, '_') + '.'})).sort((a, b) => b.prefix.length - a.prefix.length);
function byPackage(functions) {
  const sizes = new Map();
  for (const f of functions) {
    const path = packages.find(p => f.name.startsWith(p.prefix))?.path ??
      (f.name.startsWith('type:') || f.name.startsWith('type_') ? '(equality and hashes of types)'
        : f.name.startsWith('main.') ? 'weir' : '(calls in and out, and others)');
    const s = sizes.get(path) ?? {size: 0, count: 0};
    s.size += f.size;
    s.count++;
    sizes.set(path, s);
  }
  return sizes;
}
const number = n => String(n).padStart(9);
const line = (size, least, label) => console.log(`${number(size)} ${number(size - (least ?? 0))}  ${label}`);
line(module.length, empty.length, 'bytes of module, with names; what an empty plugin does not have\n\nby section');
for (const [label, size] of Object.entries(plugin.sections).sort((a, b) => b[1] - a[1])) line(size, floor.sections[label], label);
console.log('\nfunctions by package: bytes, how many more, number');
const inFloor = byPackage(floor.functions);
for (const [path, s] of [...byPackage(plugin.functions)].sort((a, b) => b[1].size - a[1].size)) {
  line(s.size, inFloor.get(path)?.size, `${String(s.count).padStart(5)}  ${path}`);
}
console.log('\nlargest functions');
for (const f of plugin.functions.sort((a, b) => b.size - a.size).slice(0, 25)) console.log(`${number(f.size)}  ${f.name}`);
