// Requests, and the plugin's configurations for them.

import {bytes} from './host.js';

const rule = (limits, more = {}) => ({name: 'per-user', key: [{header: 'x-user'}], limits, ...more});
const minute = limit => [{limit, window: '1m'}];
const millisecond = 1e6;

/**
 * Scenarios by name. Each differs from a plain rule, whose requests are allowed, in some of these:
 *
 * - rules, headers: of the plugin's configuration
 * - keys: how many values the x-user header has; each has one request before, in which it is allowed
 * - stepNanos: by how much the clock goes on before each request
 * - sends: headers that requests have besides
 * - refused: whether requests are refused
 */
export const scenarios = {};

function add(name, differs) {
  scenarios[name] = {rules: [rule(minute(1000))], keys: 1, stepNanos: 100 * millisecond, sends: [], refused: false, ...differs};
}

/** What a rule can do besides, in the place of the key of a plain rule, or beside it. */
const addRule = (name, more, sends = []) => add(name, {rules: [rule(minute(1000), more)], sends});

const ten = more => Array.from({length: 10}, (_, i) => rule(minute(1000), {name: `rule-${i}`, ...more(i)}));
const aDay = {rules: [rule([{limit: 1, window: '1d'}])], refused: true};
const token = `${btoa('{"alg":"RS256","typ":"JWT","kid":"2026-01"}')}.${btoa(JSON.stringify({
  iss: 'https://login.example.com/', aud: ['api'], iat: 1795255200, exp: 1795258800, scope: 'read write', sub: 'user-000001',
}))}.${'x'.repeat(342)}`.replaceAll('=', '').replaceAll('+', '-').replaceAll('/', '_');

add('a plain rule', {});
add('headers: []', {headers: []});
add('10,000 keys, headers: []', {rules: [rule(minute(1000000))], headers: [], keys: 10000, stepNanos: 10 * millisecond});
add('refused, 10,000 keys in turn', {...aDay, keys: 10000, stepNanos: millisecond});
add('refused again', {...aDay, stepNanos: 0.1 * millisecond});
addRule('no rule matches', {match: {path: {prefix: '/admin/'}}});
add('one of ten rules matches', {rules: ten(i => ({match: {path: {prefix: i === 9 ? '/api/' : `/v${i}/`}}}))});
add('ten rules match', {rules: ten(() => ({}))});
add('three limits', {rules: [rule([{limit: 100, window: '1s'}, {limit: 1000, window: '1m'}, {limit: 50000, window: '1h'}])]});
addRule('key host', {key: ['host']});
addRule('key path_segment', {key: [{path_segment: 2}]});
addRule('key query', {key: [{query: 'sort'}]});
addRule('key cookie', {key: [{cookie: 'sid'}]}, [['cookie', 'theme=dark; sid=3f0e5b1c']]);
addRule('key jwt_claim', {key: [{jwt_claim: 'sub'}]}, [['authorization', `Bearer ${token}`]]);
addRule('key property', {key: [{property: ['route_name']}]});
addRule('key client_ip', {key: ['client_ip']});
addRule('key in_cidr', {key: [{in_cidr: ['10.0.0.0/8', '192.0.2.0/24']}]});
addRule('key literal', {key: [{literal: 'x'}]});
addRule('match path by regex', {match: {path: {regex: '/(api|v[0-9]+)/.*'}}});
addRule('match host and a header', {match: {host: {suffix: 'example.com'}, headers: {accept: {present: true}}}});
addRule('except a network', {except: [{client_ip: ['10.0.0.0/8']}]});
addRule('overrides by a header', {overrides: {
  by: {header: 'x-plan'}, values: {gold: minute(2000)}, keys: [{key: ['ann'], limits: minute(3000)}],
}}, [['x-plan', 'gold']]);
addRule('limit_from a header', {limits: [{limit: 1000, window: '1m', limit_from: {header: 'x-limit', max: 10000}}]}, [['x-limit', '2000']]);
add('one more rule, a shadow', {rules: [rule(minute(1000)), rule(minute(1000), {name: 'new', mode: 'shadow'})]});

/** The scenario of a name, or all whose names have it as a part; an error if there is none. */
export function named(part) {
  const names = Object.keys(scenarios);
  const found = names.includes(part) ? [part] : names.filter(name => name.includes(part));
  if (found.length === 0) throw new Error(`want a part of one of ${names.map(n => `"${n}"`).join(', ')}`);
  return found;
}

/** The plugin's configuration for a scenario. */
export function configuration(scenario) {
  const document = {namespace: 'bench', rules: scenario.rules};
  if (scenario.headers !== undefined) document.headers = scenario.headers;
  return bytes(JSON.stringify(document));
}

/** What a browser behind a proxy sends. The last header differs. */
export const requestHeaders = [
  [':authority', 'api.example.com'], [':path', '/api/items?page=2&sort=name'], [':method', 'GET'], [':scheme', 'https'],
  ['user-agent', 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0'], ['accept', 'application/json'],
  ['accept-encoding', 'gzip, deflate, br'], ['x-forwarded-for', '203.0.113.7'], ['x-forwarded-proto', 'https'],
  ['x-request-id', '3f0e5b1c-58f4-4c8e-9d0a-1f7f0a8f6a51'], ['x-user', ''],
].map(([name, value]) => ({name: bytes(name), value: bytes(value)}));

/** The values of x-user. */
export const users = count => Array.from({length: count}, (_, i) => bytes(`user-${String(i).padStart(6, '0')}`));

/** The numbers below count in random order, the same in each run. */
export function shuffled(count) {
  const order = Uint32Array.from({length: count}, (_, i) => i);
  let seed = 88172645;
  for (let i = count - 1; i > 0; i--) {
    seed ^= seed << 13;
    seed ^= seed >>> 17;
    seed ^= seed << 5;
    const j = (seed >>> 0) % (i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
