// Says which packages make up the plugin: the sizes of their functions, by the names of a module
// that has them, and what is more of each than in an empty plugin.
//
//   node size.js [NAMED.wasm]
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
  s32() {
    const n = this.u32(), bits = 7 * Math.max(1, Math.ceil((n + 1).toString(2).length / 7));
    return this.data[this.at - 1] & 64 ? n - 2 ** bits : n;
  }
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

/** Sizes of a module's sections, and of its functions by name, and what its memory has at first. */
function dissect(module) {
  const reader = new Reader(module, 8);
  const sections = {}, bodies = [], segments = [], names = new Map();
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
    } else if (id === 11) {
      for (let n = reader.u32(); n > 0; n--) {
        reader.at += 2; // a segment of memory 0, at a constant
        const at = reader.s32();
        reader.at++;
        const length = reader.u32();
        segments.push({at, bytes: module.subarray(reader.at, reader.at + length)});
        reader.at += length;
      }
    }
    sections[label] = (sections[label] ?? 0) + size;
    reader.at = end;
  }
  const memory = Buffer.alloc(Math.max(...segments.map(g => g.at + g.bytes.length)));
  for (const g of segments) memory.set(g.bytes, g.at);
  return {sections, memory, functions: bodies.map((size, i) => ({name: names.get(imported + i) ?? '(no name)', size}))};
}

/**
 * The parts of Go's data: the table of functions, which tracebacks, growing stacks and the
 * collector read, types, and variables. It is null if they can't be found.
 */
function dataParts(memory) {
  // runtime.pcHeader of Go 1.20 and later, on a machine with instructions of one byte and pointers
  // of eight. runtime.moduledata begins with its address, and goes on with slices.
  const header = memory.indexOf(Buffer.from([0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]));
  if (header < 0) return null;
  const word = at => Number(memory.readBigUInt64LE(at));
  const slice = (data, i) => ({at: word(data + 8 + 24 * i), length: word(data + 16 + 24 * i), capacity: word(data + 24 + 24 * i)});
  for (let data = 0; data + 500 < memory.length; data += 8) {
    if (word(data) !== header) continue;
    const slices = Array.from({length: 5}, (_, i) => slice(data, i));
    if (slices.some(s => s.at < header || s.at > memory.length || s.length !== s.capacity)) continue;
    const [names, units, files, counters, records] = slices.map(s => s.length);
    const [noPointers, noPointersEnd, pointers, pointersEnd] = [24, 25, 26, 27].map(i => word(data + 8 * i));
    const [types, typesEnd] = [37, 38].map(i => word(data + 8 * i));
    return {
      'names of functions': names, 'names of files': 4 * units + files, 'lines, stack maps, frame sizes': counters,
      'a record for each function': records,
      'variables without pointers': noPointersEnd - noPointers, 'variables': pointersEnd - pointers,
      'types': typesEnd - types,
    };
  }
  return null;
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
const [table, least] = [plugin, floor].map(m => dataParts(m.memory));
if (table !== null && least !== null) {
  console.log('\nof data');
  for (const [label, size] of Object.entries(table)) line(size, least[label], label);
  const rest = (m, parts) => m.sections.data - Object.values(parts).reduce((a, b) => a + b);
  line(rest(plugin, table), rest(floor, least), 'constants and the rest');
}
console.log('\nfunctions by package: bytes, how many more, number');
const inFloor = byPackage(floor.functions);
for (const [path, s] of [...byPackage(plugin.functions)].sort((a, b) => b[1].size - a[1].size)) {
  line(s.size, inFloor.get(path)?.size, `${String(s.count).padStart(5)}  ${path}`);
}
console.log('\nlargest functions');
for (const f of plugin.functions.sort((a, b) => b.size - a.size).slice(0, 25)) console.log(`${number(f.size)}  ${f.name}`);
