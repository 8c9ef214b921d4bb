/** Formats: the same words for sizes and durations as the server writes. */

/**
 * @param {number} ms
 * @returns {string}
 */
export function duration(ms) {
  const whole = Math.round(ms);
  const rounded = (/** @type {number} */ unit) => Math.round(whole / unit);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  if (whole < 1000) return `${whole} ms`;
  if (rounded(100) < 600) return `${(rounded(100) / 10).toFixed(1)} s`;
  if (rounded(1000) < 3600) return `${Math.floor(rounded(1000) / 60)} m ${two(rounded(1000) % 60)} s`;
  if (rounded(60_000) < 1440) return `${Math.floor(rounded(60_000) / 60)} h ${two(rounded(60_000) % 60)} m`;
  return `${Math.floor(rounded(3_600_000) / 24)} d ${rounded(3_600_000) % 24} h`;
}

const MOST_STEPS = 5;
const MOST_TIMES = 50;
/** @type {[number, string, number[]][]} units in milliseconds, their words, and the steps that are told in them */
const UNITS = [
  [1, "ms", [1, 2, 5, 10, 20, 50]],
  [1000, "s", [0.1, 0.2, 0.5, 1, 2, 5, 10, 20]],
  [60_000, "m", [1, 2, 5, 10, 20]],
  [3_600_000, "h", [1, 2, 5, 10]],
  [86_400_000, "d", [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]],
];
const STEPS = UNITS.flatMap(([unit, word, steps]) => steps.map((step) => ({ ms: step * unit, unit, word })));

/**
 * List a few round times from 0 to a total.
 * @param {number} total
 * @returns {[number, string][]}
 */
export function roundTimes(total) {
  const step = STEPS.find((each) => each.ms * MOST_STEPS >= total) ?? STEPS[STEPS.length - 1];
  /** @type {[number, string][]} */
  const times = [];
  for (let at = 0; at <= total && times.length < MOST_TIMES; at += step.ms) {
    times.push([at, at ? `${at / step.unit} ${step.word}` : "0"]);
  }
  return times;
}

/**
 * @param {number} bytes
 * @returns {string}
 */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  let amount = bytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    amount /= 1024;
    if (amount < 1024 || unit === "TiB") return `${amount < 100 ? amount.toFixed(1) : amount.toFixed(0)} ${unit}`;
  }
  return `${bytes} B`;
}
