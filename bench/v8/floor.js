// The floor filters' modules and configuration.

import {readFileSync} from 'node:fs';

const source = new URL('.', import.meta.url);

/** Assembles name.wat, of this folder. */
export async function assemble(name) {
  const {default: wabt} = await import('wabt');
  const tools = await wabt();
  const parsed = tools.parseWat(`${name}.wat`, readFileSync(new URL(`${name}.wat`, source), 'utf8'));
  try {
    return parsed.toBinary({write_debug_names: true}).buffer;
  } finally {
    parsed.destroy();
  }
}

const tableAddress = 0x20000, tableSize = 84;

/**
 * The configuration of floor.wat, as it documents it. Texts are Uint8Arrays.
 *
 * @param {{clock: boolean, matchHeader?: Uint8Array, keyHeader?: Uint8Array, pages: number, pageNames: number,
 *   pageName: Uint8Array, pageSize?: number, writes: boolean, headers: {name: Uint8Array, value: Uint8Array}[],
 *   reply?: {status: number, details: Uint8Array, body: Uint8Array, pairs: Uint8Array}}} what
 *   pages is how many are got and set for a request, pageNames how many there are, and pageName the name of the first. A
 *   page that is not there is made, of pageSize bytes.
 */
export function floorConfiguration(what) {
  const data = [];
  let end = tableSize;
  const put = bytes => {
    const at = end;
    data.push([at, bytes]);
    end += bytes.length;
    return [tableAddress + at, bytes.length];
  };
  const none = new Uint8Array();
  const reply = what.reply;
  const texts = what.headers.map(h => [...put(h.name), ...put(h.value)]);
  end = (end + 7) & ~7;
  const [headersAt] = put(new Uint8Array(Uint32Array.from(texts.flat()).buffer));
  const numbers = [
    what.clock ? 1 : 0,
    ...put(what.matchHeader ?? none),
    ...put(what.keyHeader ?? none),
    what.pages, what.pageNames, ...put(what.pageName), what.writes ? 1 : 0,
    what.headers.length, headersAt,
    reply ? 1 : 0, reply?.status ?? 0,
    ...put(reply?.details ?? none), ...put(reply?.body ?? none), ...put(reply?.pairs ?? none),
    what.pageSize ?? 0,
  ];
  const configuration = new Uint8Array(end);
  configuration.set(new Uint8Array(Uint32Array.from(numbers).buffer));
  for (const [at, bytes] of data) configuration.set(bytes, at);
  return configuration;
}
