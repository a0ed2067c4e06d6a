// What is measured: requests, the plugin's configurations, and what the floor filter does for the
// same.

import {bytes} from './host.js';

const rule = (limits, more = {}) => ({name: 'per-user', key: [{header: 'x-user'}], limits, ...more});
const minute = [{limit: 1000, window: '1m'}];
const hour = [{limit: 1000000, window: '1h'}];
const day = [{limit: 1, window: '1d'}];
const millisecond = 1e6;

/**
 * Scenarios by name. Streams of all the names in a group are measured in turns in one process.
 *
 * - rules, headers: of the plugin's configuration
 * - keys: how many values the x-user header has; each has one request before, in which it is allowed. used is how many of them are
 *   asked for after that, in random order; all if it is left out
 * - stepNanos: by how much the clock goes on before each request
 * - sends: headers that requests have besides
 * - expect: what every request gets, allowed or refused
 * - floor: what the floor filter does: match reads a header to see whether a rule applies, pages is how many pages of shared data
 *   are got, and unless writes is false set
 */
export const scenarios = {
  'allowed': {
    title: 'allowed: one rule, a header as key, one limit',
    rules: [rule(minute)], keys: 1, stepNanos: 100 * millisecond, expect: 'allowed', floor: {pages: 1},
  },
  'allowed, headers: []': {
    title: 'the same without response headers',
    rules: [rule(minute)], headers: [], keys: 1, stepNanos: 100 * millisecond, expect: 'allowed', floor: {pages: 1},
  },
  // Of bench/envoy, whose clock is the machine's.
  'never reached': {
    title: 'allowed: a limit that is never reached',
    rules: [rule([{limit: 1000000, window: '1m'}])], keys: 1, stepNanos: 100 * millisecond, expect: 'allowed', floor: {pages: 1},
  },
  'refused': {
    title: 'refused, and not known to the VM: 10,000 keys in turn',
    rules: [rule(day)], keys: 10000, stepNanos: millisecond, expect: 'refused', floor: {pages: 1, writes: false},
  },
  'refused again': {
    title: 'refused again: one key, 10,000 a second',
    rules: [rule(day)], keys: 1, stepNanos: 0.1 * millisecond, expect: 'refused', floor: {pages: 0},
  },
  'no match': {
    title: 'no rule matches (path prefix)',
    rules: [rule(minute, {match: {path: {prefix: '/admin/'}}})], keys: 1, stepNanos: millisecond, expect: 'allowed',
    floor: {clock: false, match: ':path', key: false, pages: 0},
  },
  'one of ten rules': {
    title: 'ten rules, of which one matches (path prefixes)',
    rules: Array.from({length: 10}, (_, i) => rule(minute, {name: `rule-${i}`, match: {path: {prefix: i === 9 ? '/api/' : `/v${i}/`}}})),
    keys: 1, stepNanos: 100 * millisecond, expect: 'allowed', floor: {match: ':path', pages: 1},
  },
  'ten rules': {
    title: 'ten rules, all of which match',
    rules: Array.from({length: 10}, (_, i) => rule(minute, {name: `rule-${i}`})),
    keys: 1, stepNanos: 100 * millisecond, expect: 'allowed', floor: {pages: 10},
  },
  'three limits': {
    title: 'one rule with three limits',
    rules: [rule([{limit: 100, window: '1s'}, {limit: 1000, window: '1m'}, {limit: 50000, window: '1h'}])],
    keys: 1, stepNanos: 100 * millisecond, expect: 'allowed', floor: {pages: 1},
  },
  'hot key': {
    title: 'one key, without response headers',
    rules: [rule(hour)], headers: [], keys: 1, stepNanos: 10 * millisecond, expect: 'allowed', floor: {pages: 1},
  },
  '10,000 keys': {
    title: '10,000 keys, without response headers',
    rules: [rule(hour)], headers: [], keys: 10000, stepNanos: 10 * millisecond, expect: 'allowed', floor: {pages: 1},
  },
  '10 % full': {
    title: '10 % of the capacity used: 4,096 of 6,553 keys, without response headers',
    rules: [rule(hour)], headers: [], keys: 6553, used: 4096, stepNanos: 1000, expect: 'allowed', floor: {pages: 1},
  },
  '90 % full': {
    title: '90 % of the capacity used: 4,096 of 58,982 keys, without response headers',
    rules: [rule(hour)], headers: [], keys: 58982, used: 4096, stepNanos: 1000, expect: 'allowed', floor: {pages: 1},
  },
};

/**
 * What a rule can do besides, each in the place of the key of a plain rule, or beside it. The floor
 * stays the plain rule's.
 *
 * @param {string} title
 * @param {object} more fields of the rule
 * @param {string[][]} sends headers of the request besides
 */
function variation(title, more, sends = []) {
  scenarios[title] = {
    title, rules: [].concat(more).map((fields, i) => rule(minute, {...(i > 0 ? {name: `rule-${i}`} : {}), ...fields})), sends,
    keys: 1, stepNanos: 100 * millisecond, expect: 'allowed', floor: {pages: 1},
  };
  return title;
}

const token = `${btoa('{"alg":"RS256","typ":"JWT","kid":"2026-01"}')}.${btoa(JSON.stringify({
  iss: 'https://login.example.com/', aud: ['api'], iat: 1795255200, exp: 1795258800, scope: 'read write', sub: 'user-000001',
}))}.${'x'.repeat(342)}`.replaceAll('=', '').replaceAll('+', '-').replaceAll('/', '_');
const limits = limit => [{limit, window: '1m'}];
const besides = [
  variation('a plain rule', {}),
  variation('key host', {key: ['host']}),
  variation('key path_segment', {key: [{path_segment: 2}]}),
  variation('key query', {key: [{query: 'sort'}]}),
  variation('key cookie', {key: [{cookie: 'sid'}]}, [['cookie', 'theme=dark; sid=3f0e5b1c']]),
  variation('key jwt_claim', {key: [{jwt_claim: 'sub'}]}, [['authorization', `Bearer ${token}`]]),
  variation('key property', {key: [{property: ['route_name']}]}),
  variation('key client_ip', {key: ['client_ip']}),
  variation('key in_cidr', {key: [{in_cidr: ['10.0.0.0/8', '192.0.2.0/24']}]}),
  variation('key literal', {key: [{literal: 'x'}]}),
  variation('match path by regex', {match: {path: {regex: '/(api|v[0-9]+)/.*'}}}),
  variation('match host and a header', {match: {host: {suffix: 'example.com'}, headers: {accept: {present: true}}}}),
  variation('except a network', {except: [{client_ip: ['10.0.0.0/8']}]}),
  variation('overrides by a header', {overrides: {by: {header: 'x-plan'}, values: {gold: limits(2000)}, keys: [{key: ['ann'], limits: limits(3000)}]}},
    [['x-plan', 'gold']]),
  variation('limit_from a header', {limits: [{limit: 1000, window: '1m', limit_from: {header: 'x-limit', max: 10000}}]}, [['x-limit', '2000']]),
  variation('one more rule, a shadow', [{}, {mode: 'shadow'}]),
];

/** What is measured in one process, each by its first scenario's name. */
export const groups = [
  ['allowed'], ['allowed, headers: []'], ['refused'], ['refused again'], ['no match'], ['one of ten rules'], ['ten rules'],
  ['three limits'], ['hot key', '10,000 keys'], ['10 % full', '90 % full'], besides,
];

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

/**
 * Numbers below count in random order, the same in each run: each once, or as many of them as are
 * used.
 */
export function shuffled(count, used = count) {
  const order = Uint32Array.from({length: count}, (_, i) => i);
  let seed = 88172645;
  for (let i = count - 1; i > 0; i--) {
    seed ^= seed << 13;
    seed ^= seed >>> 17;
    seed ^= seed << 5;
    const j = (seed >>> 0) % (i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order.slice(0, used);
}
