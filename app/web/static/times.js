/** Times: shown in the reader's zone, which is named; UTC on hover. Durations that still grow, grow. */

import { duration } from "./formats.js";

/** @type {Intl.DateTimeFormatOptions} */
const thisYear = {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
};
const format = new Intl.DateTimeFormat(undefined, thisYear);
const formatOfYears = new Intl.DateTimeFormat(undefined, { ...thisYear, year: "numeric" });

/**
 * Show every `<time datetime>` in local time, and every `[data-since]` as what has passed since then.
 * @param {ParentNode} root
 */
export function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.getAttribute("datetime") ?? "");
    if (Number.isNaN(moment.getTime())) continue;
    time.setAttribute("title", moment.toISOString().replace("T", " ").replace("Z", " UTC"));
    const isThisYear = moment.getFullYear() === new Date().getFullYear();
    time.textContent = (isThisYear ? format : formatOfYears).format(moment);
  }
  tick(root);
}

/** @param {ParentNode} root */
function tick(root) {
  for (const element of root.querySelectorAll("[data-since]")) {
    const since = Date.parse(element.getAttribute("data-since") ?? "");
    const text = duration(Math.max(0, serverNow() - since));
    if (element.textContent !== text) element.textContent = text;
  }
}

let skewMs = 0;

/**
 * Take the server's clock from a page, so that a reader's clock that goes wrong makes no nonsense.
 * @param {Document} page
 */
export function setClock(page) {
  const told = Date.parse(page.querySelector("[data-now]")?.getAttribute("data-now") ?? "");
  if (!Number.isNaN(told)) skewMs = told - Date.now();
}

/** @returns {number} milliseconds since the epoch, by the server's clock */
export function serverNow() {
  return Date.now() + skewMs;
}

/** Keep durations growing. @param {number} everyMs */
export function keepTicking(everyMs) {
  setInterval(() => { if (!document.hidden) tick(document); }, everyMs);
}
