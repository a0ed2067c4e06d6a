import { byID, duration, say } from "./parts.js";
import { refusal } from "./stream.js";

// The time between two requests, in milliseconds, and how many changes are shown.
const often = 5000;
const most = 8;

// change asks for a change, and returns why there was none, or else undefined.
export async function change({ namespace, headers }, reason, method, path, query, body) {
  const asked = new URLSearchParams({ namespace, reason });
  for (const [name, value] of Object.entries(query)) for (const one of [value].flat()) asked.append(name, one);
  try {
    const response = await fetch(`v1/${path}?${asked}`, {
      method, headers: { ...headers(), "x-weir": "1", "content-type": "application/json", "idempotency-key": `${Date.now()}-${Math.random()}` },
      ...(body && { body: JSON.stringify(body) }),
    });
    if (!response.ok) return `Refused: ${await refusal(response)}`;
    return (await response.json()).changed === 0 ? "Nothing is removed: no such override is there." : undefined;
  } catch (error) {
    return `No answer: ${error.message}. Look whether it was done before you try again.`;
  }
}

// later returns the time after one of the spans that people choose; undefined for never.
export function later(span) {
  const hours = { "1h": 1, "6h": 6, "24h": 24 }[span];
  return hours && new Date(Date.now() + hours * 3_600_000).toISOString();
}

// Changes shows who has changed what, and the overrides in force.
export class Changes {
  constructor(namespace, headers) {
    Object.assign(this, { namespace, headers, at: 0 });
    Changes.shown = this;
    byID("changes").hidden = false;
    this.show([], []);
  }

  // again asks anew, unless that was done just now.
  async again(now = false) {
    if (this.running || (!now && Date.now() - this.at < often)) return;
    this.running = true;
    this.at = Date.now();
    const ask = async (path, some = "") => {
      try {
        const response = await fetch(`v1/${path}?namespace=${encodeURIComponent(this.namespace)}${some}`, { headers: this.headers(), cache: "no-store" });
        return response.ok ? (await response.json()) : undefined;
      } catch {
        return undefined; // the page says elsewhere that nobody answers
      }
    };
    const [changes, overrides] = await Promise.all([ask("changes"), ask("overrides", "&some")]);
    this.running = false;
    // The page may have turned to another namespace meanwhile.
    if (changes && overrides && Changes.shown === this) this.show(changes.changes, overrides.overrides, overrides.more);
  }

  show(changes, overrides, more = 0) {
    const lines = changes.slice(-most).reverse().map((c) => {
      const names = c.of.map((of) => [of.rule ?? of.list, ...(of.values ?? []).map(({ text, cut }) => (cut ? `${text}…` : text)), of.model].filter(Boolean).join(" "));
      const [first] = c.of;
      const more = names.length + (c.more ?? 0) - 1;
      const what = `${c.what}: ${names[0] ?? ""}${more > 0 ? ` and ${more} more` : ""}${first ? `, ${first.before || "none"} → ${first.after || "none"}` : ""}`;
      return [`${what}${c.made ? "" : " (perhaps not made)"}`, `${new Date(c.at).toLocaleString()}, by ${c.name || "anybody"}${c.address ? ` from ${c.address}` : ""}${c.reason ? `: ${c.reason}` : ""}`];
    });
    list("changes-list", lines, "changes-none", "Nobody has changed anything.");
    const rows = overrides.map((o) => [
      [o.rule, ...o.key.map((value, i) => (o.pattern && i === (o.part ?? 0) ? `${o.pattern} ${value}` : value))].join(" "), `${[o.mode, ...o.limits.map((l) => `${l.limit} in ${duration(l.width_ms)}`)].filter(Boolean).join(", ")}${o.until ? `, until ${new Date(o.until).toLocaleString()}` : ""}`,
    ]);
    list("overrides-list", rows, "overrides-none", "None.");
    if (more > 0) say(byID("overrides-none"), `and ${more} more`);
  }
}

// list shows pairs of texts, or else that there are none.
function list(id, pairs, none, text) {
  const parent = byID(id);
  while (parent.children.length > pairs.length) parent.lastChild.remove();
  pairs.forEach((pair, i) => {
    const item = parent.children[i] ?? parent.appendChild(document.createElement("li"));
    if (!item.firstChild) item.append(document.createElement("b"), document.createElement("p"));
    pair.forEach((part, j) => say(item.children[j], part));
  });
  parent.hidden = pairs.length === 0;
  say(byID(none), pairs.length === 0 ? text : "");
}
