// A preset has a text, and either a steady rate or the times of its requests, in nanoseconds since
// the world began. Each begins with a window of the clock.
const burst = (hits, from, until) => Array.from({ length: hits }, (_, i) => from + ((until - from) * (i + 0.5)) / hits);

export const presets = {
  edge: {
    told: (limit) => `${limit} requests come just before a mark of the clock, and ${limit} just after it. A fixed window of the clock lets both bursts pass.`,
    times: (limit, w) => [...burst(limit, 0.88 * w, w), ...burst(limit, w, 1.12 * w)],
  },
  never: {
    told: (limit) => `One client sends three times the limit of ${limit} and does not stop when it is refused.`,
    rate: (limit, w) => (3e9 * limit) / w,
  },
  two: {
    told: (limit) =>
      limit === 1
        ? "A first request, and one right after the window that it opened has ended."
        : `A first request, ${limit - 1} more most of a window later, and ${limit} right behind them. The window that the first request opened ends between these two bursts.`,
    times: (limit, w) => [0.4 * w, ...burst(limit - 1, 1.28 * w, 1.39 * w), ...burst(limit, 1.41 * w, 1.52 * w)],
  },
  bucket: {
    told: (limit) => `${limit} requests come at the end of a sub-bucket, and ${limit} more when it leaves, nine tenths of a window later. Sub-buckets let both bursts pass.`,
    times: (limit, w) => [...burst(limit, 1.08 * w, 1.1 * w), ...burst(limit, 2 * w, 2.02 * w)],
  },
  slow: {
    told: (limit) => `One client keeps to half of the limit of ${limit}, evenly. No lane refuses it.`,
    rate: (limit, w) => (5e8 * limit) / w,
  },
};
