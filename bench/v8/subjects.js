// The filters that are compared: the plugin, the floor that makes the same decision's least host
// calls, and one that does nothing.

import {bytes} from './host.js';
import {assemble, floorConfiguration} from './floor.js';
import {configuration, requestHeaders, scenarios, shuffled, users} from './scenarios.js';

const begin = 1795255200000000000n; // some time in 2026
const sample = 2000; // streams whose host calls are counted
const pages = 4096; // as the plugin's table has by default

// Each VM has a module of the host of its own, so that V8 keeps what it learns of each filter
// apart.
let hosts = 0;
const freshHost = () => import(`./host.js?${hosts++}`);

/**
 * Starts VMs of the filters for each scenario, and brings them to where measuring starts.
 *
 * @param {Uint8Array} plugin
 * @param {Uint8Array} goFloor the floor filter in Go
 * @param {string[]} names of scenarios
 * @param {boolean} plain whether the host is one that makes strings of everything
 */
export async function subjects(plugin, goFloor, names, plain) {
  const modules = {
    weir: new WebAssembly.Module(plugin),
    floor: new WebAssembly.Module(await assemble('floor')),
    goFloor: new WebAssembly.Module(goFloor),
    nothing: new WebAssembly.Module(await assemble('nothing')),
  };
  const all = [];
  for (const name of names) {
    if (scenarios[name] === undefined) throw new Error(`no scenario ${name}`);
    all.push(await compared(modules, name, scenarios[name], plain));
  }
  return all;
}

/** A VM of the plugin with a load, in which every key has had a request. */
export async function startPlugin(module, scenario, options) {
  return startVM(module, scenario, {...options, configuration: configuration(scenario), prepare: true});
}

/**
 * What the plugin was seen to do in a scenario, and how the floor is started that does the least
 * for it.
 *
 * @param {WebAssembly.Module} module the plugin
 */
export async function leastFor(module, name, scenario) {
  const counted = count(await startPlugin(module, scenario, {count: true}));
  const decorated = scenario.expect === 'allowed' && scenario.headers === undefined && scenario.floor.key !== false;
  if (decorated !== counted.last.headers.length > 0) throw new Error(`${name}: response headers are not as expected`);
  return {counted, floor: floorOptions(scenario, counted)};
}

async function compared(modules, name, scenario, plain) {
  const {counted, floor} = await leastFor(modules.weir, name, scenario);
  const weir = await startPlugin(modules.weir, scenario, {plain});
  const least = await startVM(modules.floor, scenario, {...floor, plain});
  const {match, writes = true, key = true} = scenario.floor;
  const inGo = match === undefined && key && writes && scenario.expect === 'allowed' ? await startVM(modules.goFloor, scenario, {...floor, plain}) : undefined;
  const nothing = await startVM(modules.nothing, scenario, {configuration: bytes(''), plain});
  return {
    name, title: scenario.title, weir, floor: least, goFloor: inGo, nothing, calls: counted.calls, pageBytes: counted.pageBytes,
    floorCalls: count(await startVM(modules.floor, scenario, {...floor, count: true})).calls,
    /** Throws unless every request since the last call got what the scenario expects. */
    check() {
      for (const s of [weir, least]) {
        const streams = s.vm.streams - s.streams, replies = s.vm.replies - s.replies;
        if (replies !== (scenario.expect === 'refused' ? streams : 0)) {
          throw new Error(`${name}: ${replies} of ${streams} requests were refused, want ${scenario.expect}`);
        }
        s.streams += streams;
        s.replies += replies;
      }
    },
  };
}

async function startVM(module, scenario, {configuration, prepare, page, count, plain}) {
  const host = await freshHost();
  const clock = new host.FakeClock(begin);
  const sharedData = new host.SharedData();
  for (let i = 0; page !== undefined && i < page.names; i++) {
    page.name.set([i >> 16, i >> 8, i], page.name.length - 3);
    sharedData.put(page.name, new Uint8Array(page.size));
  }
  // As Envoy has them of a request.
  const properties = [{path: 'route_name', value: 'items'}, {path: 'source\0address', value: '192.0.2.7:50321'}];
  const vm = host.newVM(module, {configuration, clock, sharedData, count, plain, properties});
  const sends = (scenario.sends ?? []).map(([name, value]) => ({name: bytes(name), value: bytes(value)}));
  const headers = [...sends, ...requestHeaders];
  const load = {vm, clock, headers, key: headers.length - 1, values: users(scenario.keys), stepNanos: scenario.stepNanos};
  if (prepare) host.newLoad({...load, order: Uint32Array.from({length: scenario.keys}, (_, i) => i)})(scenario.keys);
  const run = host.newLoad({...load, order: shuffled(scenario.keys, scenario.used)});
  return {vm, run, streams: vm.streams, replies: vm.replies};
}

/**
 * Host calls of an average stream by name, and how large the values are that it gets from shared
 * data.
 */
function count({vm, run}) {
  for (const name in vm.counts) vm.counts[name] = 0;
  for (const name in vm.sizes) vm.sizes[name] = 0;
  run(sample);
  const calls = Object.entries(vm.counts).filter(([, n]) => n > 0).map(([name, n]) => [name, n / sample]);
  const {gets, getBytes, keyBytes} = vm.sizes;
  return {
    calls: Object.fromEntries(calls.sort()),
    pageBytes: gets > 0 ? Math.round(getBytes / gets) : 0,
    nameBytes: gets > 0 ? Math.round(keyBytes / gets) : 0,
    last: vm.last(),
  };
}

/** How the floor is started that does the least for what the plugin was seen to do. */
function floorOptions(scenario, {pageBytes, nameBytes, last}) {
  const {clock = true, match, key = true, pages: perRequest, writes = true} = scenario.floor;
  const page = {
    name: bytes('weir:bench:'.padEnd(Math.max(nameBytes, 14), '-')),
    names: perRequest === 0 ? 0 : perRequest * scenario.keys === 1 ? 1 : pages,
    // The plugin gets no page that it has written itself. Then it is of one entry.
    size: pageBytes > 0 ? Math.max(pageBytes, 16) : 41,
  };
  return {
    page,
    configuration: floorConfiguration({
      clock, matchHeader: match && bytes(match), keyHeader: key ? bytes('x-user') : undefined,
      pages: perRequest, pageNames: page.names, pageName: page.name, pageSize: page.size, writes, headers: last.headers, reply: last.reply,
    }),
  };
}
