/** Formats: the same words for sizes and durations as the server writes. */

/**
 * @param {number} ms
 * @returns {string}
 */
export function duration(ms) {
  const seconds = ms / 1000;
  const two = (/** @type {number} */ number) => String(Math.floor(number)).padStart(2, "0");
  if (seconds < 1) return `${Math.floor(ms)} ms`;
  if (seconds < 60) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two((seconds % 3600) / 60)} m`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
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
