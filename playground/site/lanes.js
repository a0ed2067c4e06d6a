import { lasts, second } from "./world.js";

// The page's texts about each lane, in the order of package lane. name is the kind's name there,
// draws names the picture of its counter, does describes the algorithm, and just describes the
// counter now. verdict and mostOf exist for a lane whose limit is not one per window. chapter is
// the lane's part of the story: try names a preset, and users has its sources in
// docs/playground.md.

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
    chapter: {
      question: "Can a client have twice its limit for a moment?",
      answer: "A fixed window begins with the clock. A client that uses up its limit just before a mark of the clock, and again just after it, gets both.",
      try: "edge",
      users: "Envoy’s rate limit service, and Kong’s rate-limiting plugin.",
      not: "Something behind it breaks at twice the rate.",
    },
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
    chapter: {
      question: "Is it enough that the window begins with the client?",
      answer: "A burst after a pause opens its own window, so the clock’s marks help nobody. A client that opens the window early, and waits for its end, still gets nearly twice its limit.",
      try: "two",
      users: "APISIX’s limit-count, and programs with Redis’s INCR and EXPIRE.",
      not: "Clients can choose when they begin.",
    },
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
    chapter: {
      question: "How much do two numbers know of the past?",
      answer: "The window before counts by the share that still lies within reach, as if its requests had come evenly. Small limits pay for that: a client that never stops gets 9 of 10.",
      try: "never",
      users: "Cloudflare’s rate limiting, and Kong’s advanced plugin.",
      not: "The limit is below 20, and clients are to get all of it.",
    },
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
    chapter: {
      question: "How exact are ten small counters?",
      answer: "A bucket leaves as a whole, up to a tenth of a window early. Bursts that lie just so let 20 of 10 pass, within nine tenths of a window and no less.",
      try: "bucket",
      users: "Figma, with 60 buckets in a window.",
      not: "No window, wherever it begins, may have more than the limit.",
    },
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
    chapter: {
      question: "What does it cost to be exact?",
      answer: "No window has more than the limit, and nobody is refused who has room. Each request that passed takes memory until it leaves: compare the bytes.",
      try: "never",
      users: "ClassDojo, with sorted sets of Redis.",
      not: "The limit is in the thousands.",
    },
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
    chapter: {
      question: "Can a client save up for a burst?",
      answer: "A bucket that is full lets a burst pass at once, and then the steady rate. In its first window a client gets both, which is nearly twice the limit.",
      try: "never",
      users: "Stripe, AWS API Gateway, and Envoy’s local rate limit.",
      not: "People are to read their quota off a clock.",
    },
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
    chapter: {
      question: "What if requests are slow, and not many?",
      answer: "A place is free again when a request has ended, however long that takes. So the limit follows what the upstream can do at once, and no clock.",
      try: "never",
      users: "nginx’s limit_conn, and Traefik’s InFlightReq.",
      not: "Requests are short, and too many of them come in a minute.",
    },
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
    chapter: {
      question: "Must a burst be refused?",
      answer: "The requests of a burst wait, and go on evenly, in the order of their coming. Only those are refused for which the queue has no room. Nobody behind it sees the burst.",
      try: "edge",
      users: "nginx’s limit_req with a burst and without nodelay.",
      not: "Clients give up before their turn comes.",
    },
  },
];
