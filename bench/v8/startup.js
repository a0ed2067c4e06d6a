// Starts the plugin once in this process, and prints as JSON how long it took and how much memory
// it has.
//
//   node startup.js PLUGIN.wasm [STREAMS]
//
// With STREAMS it then drives so many, of 10,000 keys, and prints a line of JSON for each million:
// the time of a stream, and the memory at the end.

import {readFileSync} from 'node:fs';
import {FakeClock, newVM} from './host.js';
import {configuration, scenarios} from './scenarios.js';
import {startPlugin} from './subjects.js';

const [plugin, streams = '0'] = process.argv.slice(2);
const code = readFileSync(plugin);
const millis = since => Number(process.hrtime.bigint() - since) / 1e6;

const begin = process.hrtime.bigint();
const module = new WebAssembly.Module(code);
const compileMillis = millis(begin);
const instantiated = process.hrtime.bigint();
const vm = newVM(module, {configuration: configuration(scenarios.allowed), clock: new FakeClock(1795255200000000000n)});
const configuredMillis = millis(instantiated);
console.log(JSON.stringify({bytes: code.length, compileMillis, configuredMillis, memoryBytes: vm.memoryBytes}));

if (Number(streams) > 0) {
  const long = await startPlugin(module, {...scenarios['10,000 keys'], headers: undefined}, {});
  for (let done = 0; done < Number(streams); done += 1e6) {
    const start = process.hrtime.bigint();
    for (let i = 0; i < 1e6; i += 1e4) {
      long.run(1e4);
      if (i % 1e5 === 0) long.vm.tick();
    }
    console.log(JSON.stringify({
      streams: done + 1e6, nanos: Number(process.hrtime.bigint() - start) / 1e6, memoryBytes: long.vm.memoryBytes,
      hostBytes: process.memoryUsage().heapUsed,
    }));
  }
}
