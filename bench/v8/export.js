// Prints what bench/native and bench/envoy need to drive scenarios of one key on other hosts, as
// JSON: the floor filters' modules and configurations, with what they need in shared data. What is
// not text is in base 64.
//
//   node export.js PLUGIN.wasm NAME…

import {readFileSync} from 'node:fs';
import {text} from './host.js';
import {assemble} from './floor.js';
import {configuration, requestHeaders, scenarios, users} from './scenarios.js';
import {leastFor} from './subjects.js';

const base64 = data => Buffer.from(data).toString('base64');

const [plugin, ...names] = process.argv.slice(2);
const module = new WebAssembly.Module(readFileSync(plugin));
const [user] = users(1);
const all = [];
for (const name of names) {
  const scenario = scenarios[name];
  if (scenario?.keys !== 1) throw new Error(`no scenario ${name} of one key`);
  const {floor: {page, configuration: least}} = await leastFor(module, name, scenario);
  if (page.names > 1) throw new Error(`${name} has pages of several names`);
  page.name.fill(0, page.name.length - 3); // the page's number
  all.push({
    name, title: scenario.title, step_nanos: scenario.stepNanos, refused: scenario.expect === 'refused',
    configuration: base64(configuration(scenario)), floor_configuration: base64(least),
    ...(page.names > 0 ? {page_name: base64(page.name), page_size: page.size} : {}),
  });
}
process.stdout.write(JSON.stringify({
  floor: base64(await assemble('floor')), nothing: base64(await assemble('nothing')),
  headers: requestHeaders.map((h, i) => [text(h.name), text(i === requestHeaders.length - 1 ? user : h.value)]),
  scenarios: all,
}));
