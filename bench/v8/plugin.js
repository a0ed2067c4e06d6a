// The plugin in a VM, driven by a scenario's requests.

import {createHash} from 'node:crypto';
import {readFileSync} from 'node:fs';
import {basename} from 'node:path';
import {bytes} from './host.js';
import {configuration, requestHeaders, scenarios, shuffled, users} from './scenarios.js';

const begin = 1795255200000000000n; // some time in 2026

/** Reads a module from a file, and says which build it is, for the tables. */
export function readModule(file) {
  const code = readFileSync(file);
  const digest = createHash('sha256').update(code).digest('hex').slice(0, 12);
  return {
    module: new WebAssembly.Module(code),
    build: `${basename(file)}: ${code.length.toLocaleString('en')} B, SHA-256 ${digest}…; Node ${process.version}, V8 ${process.versions.v8}`,
  };
}

// Each VM has a module of the host of its own, so that V8 keeps what it learns of each plugin
// apart.
let hosts = 0;

/**
 * Starts a VM of a module in a scenario, in which every key has had a request.
 *
 * @returns {Promise<{run: (count: number) => void, tick: () => void}>} run throws unless all of its
 *   requests get what the scenario expects
 */
export async function start(module, name) {
  const host = await import(`./host.js?${hosts++}`);
  const scenario = scenarios[name];
  const clock = new host.FakeClock(begin);
  // As Envoy has them of a request.
  const properties = [{path: 'route_name', value: 'items'}, {path: 'source\0address', value: '192.0.2.7:50321'}];
  const vm = host.newVM(module, {configuration: configuration(scenario), clock, properties});
  const headers = [...scenario.sends.map(([name, value]) => ({name: bytes(name), value: bytes(value)})), ...requestHeaders];
  const load = {vm, clock, headers, key: headers.length - 1, values: users(scenario.keys), stepNanos: scenario.stepNanos};
  host.newLoad({...load, order: Uint32Array.from({length: scenario.keys}, (_, i) => i)})(scenario.keys);
  const drive = host.newLoad({...load, order: shuffled(scenario.keys)});
  return {
    tick: vm.tick,
    run(count) {
      const before = vm.replies;
      drive(count);
      const refused = vm.replies - before;
      if (refused !== (scenario.refused ? count : 0)) throw new Error(`${name}: ${refused} of ${count} requests were refused`);
    },
  };
}
