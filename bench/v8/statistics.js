/** The q-quantile of values, the nearest of them. */
export function quantile(values, q) {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

export const median = values => quantile(values, 0.5);
