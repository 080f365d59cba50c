// Axes with round numbers.

/** The smallest of 1, 2, 5, 10, 20, 50 ... that is at least `value`. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((digit) => digit * power).find((round) => round >= value * 0.999);
}

/** Three lines from 0 to a round number at or above the largest value. */
export function ticks(largest, least) {
  const top = Math.max(largest, least);
  const step = roundUp(top / 3);
  const count = Math.max(1, Math.ceil(top / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

/** A number in short form. */
export function brief(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(0)}k`;
  if (value >= 1e3) return `${(value / 1e3).toFixed(1)}k`;
  return Number.isInteger(value) || value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

/** A duration in words. */
export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400)
    return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}
