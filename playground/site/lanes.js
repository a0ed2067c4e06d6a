import { lasts, second } from "./world.js";

// The page's texts about each lane, in the order of package lane. name is the kind's name there,
// draws names the picture of its counter, does describes the algorithm, and just describes the
// counter now. verdict and mostOf exist for a lane whose limit is not one per window. limits and delay
// are those of a rule that counts so. Who uses which algorithm has its sources in docs/how-it-counts.md.

const seconds = (nanos) => `${Math.max(0, nanos / second).toFixed(1)}\u00a0s`;

// span returns a window in words, as in "in the last 10 seconds".
export const span = (nanos) => `${nanos / second} seconds`;

const refusedUntil = (view) => `One more passes in ${seconds(view.next)}.`;

// verdict says how a lane has kept its limit so far, from the lane's counts.
export function verdict({ passed, refused, most, strict }, { limit, window }) {
  if (passed + refused === 0) return "";
  if (most > limit) return `Not kept: ${most} of ${limit} have passed within ${span(window)}.`;
  const kept = `Kept: at most ${most} of ${limit} have passed within ${span(window)}.`;
  if (strict === 0) return kept;
  return `${kept} It has refused ${strict} for which there was room.`;
}

export const lanes = [
  {
    name: "fixed-window",
    title: "Fixed window",
    draws: "windows",
    does: ({ window }) => `Counts from one mark of the clock to the next, ${span(window)} apart, and starts at zero there.`,
    just: (view) =>
      view.remaining > 0
        ? `${view.current} of ${view.quota} in this window, which ends in ${seconds(view.reset)}.`
        : `This window has had its ${view.quota}. The next begins in ${seconds(view.reset)}.`,
    limits: ({ limit, window }) => ({ limit, window, algorithm: "fixed_window" }),
  },
  {
    name: "first-hit",
    title: "Fixed window, first hit",
    draws: "windows",
    does: ({ window }) => `The first request opens a window of ${span(window)}. The first request after its end opens the next.`,
    just: (view) => {
      if (view.age < 0) return "No window is open: the next request opens one.";
      return view.remaining > 0
        ? `${view.current} of ${view.quota} in the window that was opened ${seconds(view.age)} ago.`
        : `The window has had its ${view.quota}. It ends in ${seconds(view.reset)}.`;
    },
    limits: ({ limit, window }) => ({ limit, window, algorithm: "fixed_window", start: "first_hit" }),
  },
  {
    name: "sliding-window",
    title: "Sliding window",
    draws: "weighted",
    does: ({ window }) => `Counts this window, and the part of the window before that the last ${span(window)} still cover.`,
    just: (view, { window }) => {
      const share = Math.round((1 - view.age / window) * 100);
      const sum = `${view.previous} × ${share} % + ${view.current} ≈ ${view.used.toFixed(1)} of ${view.quota}.`;
      return view.remaining > 0 ? sum : `${sum} ${refusedUntil(view)}`;
    },
    limits: ({ limit, window }) => ({ limit, window, algorithm: "sliding_window" }),
  },
  {
    name: "sub-buckets",
    title: "Sub-buckets",
    draws: "buckets",
    does: ({ window }) => `Counts in ten small buckets of ${(window / second / 10).toFixed(1)} s: the present one, and the nine before. The eleventh, which the last ${span(window)} still touch, counts no more.`,
    just: (view) => {
      const sum = `${view.used} of ${view.quota} in ${view.buckets.length} ${view.buckets.length === 1 ? "bucket" : "buckets"} with hits.`;
      return view.remaining > 0 ? sum : `${sum} ${refusedUntil(view)}`;
    },
    limits: ({ limit, window, tenth }) => ({ limit, window, algorithm: "sliding_window", precision: tenth }),
  },
  {
    name: "sliding-log",
    title: "Sliding log",
    draws: "log",
    does: ({ window }) => `Remembers when each request passed, until that is ${span(window)} ago.`,
    just: (view) => {
      const sum = `${view.used} of ${view.quota} remembered.`;
      return view.remaining > 0 ? sum : `${sum} ${refusedUntil(view)}`;
    },
    limits: ({ limit, window }) => ({ limit, window, algorithm: "sliding_log" }),
  },
  {
    name: "token-bucket",
    title: "Token bucket",
    draws: "tokens",
    does: ({ window, limit }) => `Each request takes a token. A token drips back every ${(window / limit / second).toFixed(2)} s, until there are ${limit}.`,
    just: (view) => {
      if (view.remaining === view.quota) return `The bucket is full: ${view.quota} tokens.`;
      const sum = `${view.remaining} of ${view.quota} tokens are there.`;
      return `${sum} The next comes in ${seconds(view.next)}.`;
    },
    limits: ({ limit, window }) => ({ limit, window, algorithm: "token_bucket", burst: limit }),
  },
  {
    name: "in-flight",
    title: "In flight",
    draws: "flight",
    does: ({ window, limit }) => `Lets ${limit} requests be there at the same time. Here each lasts ${lasts(window) / second} s. The curve shows how many are there.`,
    just: (view) => {
      const sum = `${view.used} of ${view.quota} are in flight.`;
      return view.remaining > 0 ? sum : `${sum} One more passes when one of them ends.`;
    },
    verdict: ({ passed, refused, most }, { limit }) =>
      passed + refused === 0 ? "" : most > limit ? `Not kept: ${most} of ${limit} have been in flight at once.` : `Kept: at most ${most} of ${limit} have been in flight at once.`,
    mostOf: () => "Most at once",
    limits: ({ limit }) => ({ limit, algorithm: "in_flight", hold: "10m" }),
  },
  {
    name: "queue",
    title: "Queue",
    draws: "queue",
    does: ({ window, limit }) => `Lets a request go on every ${(window / limit / second).toFixed(2)} s. Up to ${limit} wait for their turn.`,
    just: (view) => {
      if (view.used === 0) return "Nobody waits.";
      const sum = `${view.used} of ${view.quota} wait. The next goes on in ${seconds(view.next)}.`;
      return view.remaining > 0 ? sum : `The queue is full: ${sum}`;
    },
    limits: ({ limit, window }) => ({ limit, window, algorithm: "token_bucket", burst: 1 }),
    delay: ({ limit, window }) => ({ most: window, queue: limit }),
  },
];

// ruleOf is a configuration whose rule counts as a lane does.
export function ruleOf(lane, { limit, window }) {
  const seconds = window / second;
  const of = { limit, window: `${seconds}s`, tenth: seconds % 10 === 0 ? `${seconds / 10}s` : `${seconds * 100}ms` };
  const rule = { name: lane.name, key: [{ header: "x-user" }], limits: [lane.limits(of)] };
  if (lane.delay) rule.delay = lane.delay(of);
  return JSON.stringify({ rules: [rule] }, null, 2);
}
