/**
 * The timeline: while a run goes on its end is now, so the bars in flight grow and the others make room; when it has
 * ended, bars that the server did not send again find their last place.
 * The server draws the same at the moment in which it answers; this only goes on from there.
 */

import { enhance, onContent } from "./content.js";
import { roundTimes } from "./formats.js";
import { serverNow } from "./times.js";

const REDRAW_MS = 250;

/** @param {ParentNode} root */
const drawAll = (root) => draw(root, ".timeline");

/**
 * @param {ParentNode} root
 * @param {string} which
 */
function draw(root, which) {
  for (const timeline of root.querySelectorAll(which)) {
    const origin = Date.parse(timeline.getAttribute("data-origin") ?? "");
    const known = timeline.getAttribute("data-total");
    const total = known === null ? Math.max(1, serverNow() - origin) : Number(known);
    for (const line of timeline.querySelectorAll(".bar-line")) {
      const end = line.getAttribute("data-end");
      line.setAttribute("x1", share(Number(line.getAttribute("data-start")), total));
      line.setAttribute("x2", end === null ? "100%" : share(Number(end), total));
    }
    const axis = timeline.querySelector(".axis > svg");
    if (axis) drawAxis(axis, total);
  }
}

/**
 * @param {Element} axis
 * @param {number} total
 */
function drawAxis(axis, total) {
  const times = roundTimes(total);
  while (axis.children.length > times.length) axis.lastElementChild?.remove();
  times.forEach(([at, word], number) => {
    const tick = axis.children[number] ?? axis.appendChild(document.createElementNS(axis.namespaceURI, "text"));
    tick.setAttribute("x", share(at, total));
    tick.setAttribute("y", "12");
    if (tick.textContent !== word) tick.textContent = word;
  });
}

/**
 * @param {number} ms
 * @param {number} total
 */
function share(ms, total) {
  return `${(Math.min(1, Math.max(0, ms / total)) * 100).toFixed(3)}%`;
}

onContent(drawAll);
enhance(document);
setInterval(() => { if (!document.hidden) draw(document, ".timeline:not([data-total])"); }, REDRAW_MS);
