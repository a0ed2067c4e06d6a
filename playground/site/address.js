// The address has the settings that differ from those of a fresh page. So a link leads to the same
// view. Values that the page can't have are ignored.
export const speeds = [1, 4, 16];
export const windows = [2, 5, 10, 30, 60]; // seconds
export const opening = { preset: "edge", limit: 10, window: 10, rate: 0, speed: 1, lane: "" };
export const mostLimit = 50;
export const mostRate = 50; // requests a second

// settings returns the settings of an address's query. presets and lanes are the valid names. With
// a rate, no preset plays.
export function settings(query, presets, lanes) {
  const asked = new URLSearchParams(query);
  const number = (name, allowed) => {
    const text = asked.get(name) ?? "";
    const n = /^\d{1,3}(\.\d)?$/.test(text) ? Number(text) : NaN;
    return allowed(n) ? n : opening[name];
  };
  const rate = number("rate", (n) => n >= 0 && n <= mostRate);
  const one = (name, of) => (of.includes(asked.get(name)) ? asked.get(name) : "");
  return {
    preset: one("preset", presets) || (asked.has("rate") ? "" : opening.preset),
    limit: number("limit", (n) => Number.isInteger(n) && n >= 1 && n <= mostLimit),
    window: number("window", (n) => windows.includes(n)),
    rate,
    speed: number("speed", (n) => speeds.includes(n)),
    lane: one("lane", lanes),
    embed: one("embed", lanes),
  };
}

// query returns the query for some settings.
export function query(set) {
  const says = new URLSearchParams();
  for (const name of ["limit", "window", "speed", "lane"]) if (set[name] !== opening[name]) says.set(name, set[name]);
  if (!set.preset) says.set("rate", set.rate);
  else if (set.preset !== opening.preset) says.set("preset", set.preset);
  if (set.embed) says.set("embed", set.embed);
  return says.size > 0 ? `?${says}` : "";
}
