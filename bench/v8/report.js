// Figures as Markdown and as a plot.

const ns = n => Math.round(n).toLocaleString('en');
const fixed = (n, digits = 2) => n.toFixed(digits);
const mib = n => `${fixed(n / 2 ** 20, 1)} MiB`;
const row = cells => `| ${cells.join(' | ')} |\n`;

const times = ratio => ratio === undefined ? '' : fixed(ratio.median);

/** A call's name without what all have in common. */
const short = name => name.replace(/^proxy_/, '').replace('_nanoseconds', '');
const number = n => n === Math.round(n) ? String(n) : n < 0.01 ? '<0.01' : fixed(n);

function calls(all) {
  const sum = Object.values(all).reduce((a, b) => a + b, 0);
  return `${number(sum)}: ${Object.entries(all).map(([name, n]) => n === 1 ? short(name) : `${number(n)} ${short(name)}`).join(', ')}`;
}

/** Whether a scenario is what a rule does besides, and is compared with a plain rule. */
const isBesides = s => s.toFirst?.name === 'a plain rule';

/** The figures as tables. */
export function table(figures) {
  const {machine: m} = figures;
  let out = `\n${m.processor}, ${m.processors} processors, Node ${m.node}, V8 ${m.v8}.\n\n`;
  out += row(['scenario', 'times the floor', '10–90 %', 'more than the floor', 'weir', 'floor', 'nothing', 'the floor in Go', 'times the floor, plain host', 'plain floor', 'in Go', 'page', 'host calls of a request']);
  out += row(['---', ...Array(11).fill('--:'), '---']);
  for (const s of figures.scenarios.filter(s => !isBesides(s))) {
    out += row([s.title, `**${fixed(s.ratio.median)}**`, `${fixed(s.ratio.low)}–${fixed(s.ratio.high)}`, `${ns(s.moreNanos.median)} ns`,
      `${ns(s.nanos.weir)} ns`, `${ns(s.nanos.floor)} ns`, `${ns(s.nanos.nothing)} ns`, times(s.goRatio),
      `**${times(s.plain.ratio)}**`, `${ns(s.plain.nanos.floor)} ns`, times(s.plain.goRatio), `${s.pageBytes} B`, calls(s.calls)]);
  }
  out += '\n';
  for (const s of figures.scenarios.filter(s => s.toFirst !== undefined && !isBesides(s))) {
    out += `"${s.name}" takes ${fixed(s.toFirst.median)} times the time of "${s.toFirst.name}" (${fixed(s.toFirst.low)}–${fixed(s.toFirst.high)}), and ` +
      `${fixed(s.plain.toFirst.median)} times on the plain host (${fixed(s.plain.toFirst.low)}–${fixed(s.plain.toFirst.high)}).\n`;
  }
  const besides = figures.scenarios.filter(isBesides);
  if (besides.length > 0) {
    out += `\n${row(['what a rule does besides', 'times a plain rule', '10–90 %', 'plain host', '10–90 %', 'more than the floor', 'host calls of a request'])}`;
    out += row(['---', ...Array(5).fill('--:'), '---']);
    for (const {title, toFirst, plain, moreNanos, calls: all} of besides) {
      out += row([title, ...[toFirst, plain.toFirst].flatMap(r => [`**${fixed(r.median)}**`, `${fixed(r.low)}–${fixed(r.high)}`]), `${ns(moreNanos.median)} ns`, calls(all)]);
    }
  }
  if (figures.sync !== undefined) {
    out += `\n${row(['synchronisation of', 'longest callback', 'in requests', 'worst of all cycles', 'for each key', 'a request', 'from the first callout to the last answer', 'answered after the last request', 'callouts', 'memory'])}`;
    out += row(['---', ...Array(9).fill('--:')]);
    for (const s of figures.sync) {
      out += row([`${s.name}${s.name.includes('keys') ? '' : ` (${ns(s.keys)} keys)`}`, `${fixed(s.longest.millis)} ms`, ns(s.longest.requests),
        `${fixed(s.longest.worstMillis)} ms`, `${fixed(s.keyMicros, 1)} µs`, `${fixed(s.requestMicros, 1)} µs`, `${ns(s.pushingMillis)} ms`,
        `${ns(s.pushedMillis)} ms`, s.callouts, mib(s.memoryBytes)]);
    }
  }
  if (figures.start !== undefined) {
    const {start: s} = figures;
    out += `\n${row(['start', ''])}${row(['---', '--:'])}`;
    out += row(['module', `${ns(s.bytes)} bytes`]);
    out += row(['instantiated to configured, functions compiled when they are first called (V8\'s default)', `${fixed(s.lazy.configuredMillis, 1)} ms`]);
    out += row(['compiled to configured, likewise', `${fixed(s.lazy.compileMillis + s.lazy.configuredMillis, 1)} ms`]);
    out += row(['instantiated to configured, all compiled before', `${fixed(s.eager.configuredMillis, 1)} ms`]);
    out += row(['compiled to configured, likewise', `${fixed(s.eager.compileMillis + s.eager.configuredMillis, 1)} ms`]);
    out += row(['memory when configured', mib(s.memoryBytes)]);
    out += row(['memory after a million requests of 10,000 keys', mib(s.memoryBytesAfterMillion)]);
  }
  if (figures.long?.length > 0) {
    out += `\nA long run, 10,000 keys, default headers:\n\n`;
    out += row(['million streams', ...figures.long.map(l => l.streams / 1e6)]);
    out += row(['---', ...figures.long.map(() => '--:')]);
    out += row(['ns for each', ...figures.long.map(l => ns(l.nanos))]);
    out += row(['memory, MiB', ...figures.long.map(l => fixed(l.memoryBytes / 2 ** 20, 1))]);
  }
  return `${out}\n`;
}

const escape = text => text.replace(/[&<>]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;'})[c]);

/** A bar for each scenario: how many times the floor's time the plugin takes. */
export function plot(figures) {
  const scenarios = figures.scenarios.filter(s => !isBesides(s));
  const left = 170, width = 640, height = 24, top = 34, right = 70;
  const most = Math.ceil(Math.max(2, ...scenarios.map(s => s.ratio.high)));
  const x = ratio => left + (width - left - right) * ratio / most;
  const bottom = top + height * scenarios.length;
  const lines = [];
  for (let r = 0; r <= most; r += Math.ceil(most / 10)) {
    lines.push(`<line x1="${x(r)}" y1="${top}" x2="${x(r)}" y2="${bottom}" stroke="${r === 1 ? '#000' : '#ddd'}"/>`,
      `<text x="${x(r)}" y="${bottom + 16}" text-anchor="middle">${r}</text>`);
  }
  scenarios.forEach((s, i) => {
    const y = top + height * i;
    const middle = y + height / 2;
    lines.push(`<text x="${left - 8}" y="${middle + 4}" text-anchor="end">${escape(s.name)}</text>`,
      `<rect x="${left}" y="${y + 4}" width="${(x(s.ratio.median) - left).toFixed(1)}" height="${height - 8}" fill="#56b4e9"/>`,
      `<line x1="${x(s.ratio.low).toFixed(1)}" y1="${middle}" x2="${x(s.ratio.high).toFixed(1)}" y2="${middle}" stroke="#000"/>`,
      `<text x="${(x(s.ratio.high) + 5).toFixed(1)}" y="${middle + 4}">${fixed(s.ratio.median)}</text>`);
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${bottom + 44}" font-family="Liberation Sans, Arial, sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
<text x="${left}" y="20" font-size="14">Time of a stream on V8, in times of the floor filter's</text>
${lines.join('\n')}
<text x="${(left + width - right) / 2}" y="${bottom + 34}" text-anchor="middle">median of rounds; lines: 10 % to 90 % of them</text>
</svg>
`;
}
