import { second } from "./world.js";

// What the page says of each lane, in the order of package lane. draws is how its counter is drawn,
// does what the algorithm does, and just what has just happened.

const seconds = (nanos) => `${Math.max(0, nanos / second).toFixed(1)}\u00a0s`;

// span is a window in words: in the last 10 seconds, 10 seconds ago.
const span = (nanos) => `${nanos / second} seconds`;

const refusedUntil = (view) => `One more passes in ${seconds(view.next)}.`;

export const lanes = [
  {
    title: "Fixed window",
    draws: "windows",
    does: ({ window }) => `Counts from one mark of the clock to the next, ${span(window)} apart, and starts at zero there.`,
    just: (allowed, view) =>
      allowed
        ? `${view.current} of ${view.quota} in this window, which ends in ${seconds(view.reset)}.`
        : `This window has had its ${view.quota}. The next one begins in ${seconds(view.reset)}.`,
  },
  {
    title: "Fixed window, first hit",
    draws: "windows",
    does: ({ window }) => `The first request opens a window of ${span(window)}. The first one after its end opens the next.`,
    just: (allowed, view) => {
      if (view.age < 0) return "No window is open: the next request opens one.";
      return allowed
        ? `${view.current} of ${view.quota} in the window that was opened ${seconds(view.age)} ago.`
        : `The window has had its ${view.quota}. It ends in ${seconds(view.reset)}.`;
    },
  },
  {
    title: "Sliding window",
    draws: "weighted",
    does: ({ window }) => `Counts this window, and the part of the one before that the last ${span(window)} still cover.`,
    just: (allowed, view, { window }) => {
      const share = Math.round((1 - view.age / window) * 100);
      const sum = `${view.previous} × ${share} % + ${view.current} = ${view.used.toFixed(1)} of ${view.quota}.`;
      return view.remaining > 0 ? sum : `${sum} ${refusedUntil(view)}`;
    },
  },
  {
    title: "Sub-buckets",
    draws: "buckets",
    does: ({ window }) => `Counts in ten small buckets, and adds up those that the last ${span(window)} touch.`,
    just: (allowed, view) => {
      const sum = `${view.used} of ${view.quota} in ${view.buckets.length} ${view.buckets.length === 1 ? "bucket" : "buckets"} with hits.`;
      return view.remaining > 0 ? sum : `${sum} ${refusedUntil(view)}`;
    },
  },
  {
    title: "Sliding log",
    draws: "log",
    does: ({ window }) => `Remembers when each request passed, until that is ${span(window)} ago.`,
    just: (allowed, view) => {
      const sum = `${view.used} of ${view.quota} remembered.`;
      return view.remaining > 0 ? sum : `${sum} ${refusedUntil(view)}`;
    },
  },
  {
    title: "Token bucket",
    draws: "tokens",
    does: ({ window, limit }) => `Each request takes a token. One drips back every ${(window / limit / second).toFixed(2)} s, until there are ${limit}.`,
    just: (allowed, view) => {
      if (view.remaining === view.quota) return `The bucket is full: ${view.quota} tokens.`;
      const sum = `${view.remaining} of ${view.quota} tokens are there.`;
      return `${sum} The next one comes in ${seconds(view.next)}.`;
    },
  },
];
