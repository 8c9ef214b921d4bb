/**
 * The raw text of an output, however long: the lines in view are in the document, and no others.
 *
 * A line that is wider than the window is cut into rows; unwrapped, into rows of some thousand characters, since a
 * browser lays out a line of megabytes for seconds. Rows have one height, so that a row's place follows from its
 * number; and a text that would be taller than browsers can scroll is scrolled in proportion.
 */

import { announce } from "./announcer.js";
import { copyText } from "./copy.js";
import { size } from "./formats.js";
import { marked, visible } from "./visible.js";

const SHOWN_BYTES = 16 * 1024 * 1024;
const UNWRAPPED_COLUMNS = 2000;
const FEWEST_COLUMNS = 20;
const TALLEST_PX = 8_000_000;
const SPARE_ROWS = 10;

/** @typedef {{text: string, starts: Uint32Array, lines: Uint32Array, rows: number, lineCount: number}} Layout */
/** @typedef {{box: HTMLElement, text: string, layout: Layout, rowPx: number, columnPx: number, columns: number, isWrapped: boolean}} Shown */

/** @type {Shown | null} */
let shown = null;

/** @param {ParentNode} root */
export function adoptRaw(root) {
  const box = root.querySelector("#raw");
  if (!(box instanceof HTMLElement) || box.dataset.shown) return;
  box.dataset.shown = "coming";
  void load(box);
}

/** @param {HTMLElement} box */
async function load(box) {
  try {
    const response = await fetch(box.dataset.url ?? "", { cache: "no-cache" });
    if (!response.ok || !response.body) throw new Error(String(response.status));
    const text = await read(response.body);
    show(box, text);
  } catch {
    box.dataset.shown = "not";
    announce("The rest of the output could not be fetched");
  }
}

/**
 * @param {ReadableStream<Uint8Array>} body
 * @returns {Promise<string>} the text, or as much of it as a page can bear
 */
async function read(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const pieces = [];
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(decoder.decode(value, { stream: true }));
    bytes += value.length;
    if (bytes >= SHOWN_BYTES) {
      await reader.cancel();
      break;
    }
  }
  return pieces.join("");
}

/**
 * @param {HTMLElement} box
 * @param {string} text
 */
function show(box, text) {
  box.textContent = "";
  const { rowPx, columnPx } = measure(box);
  const isWrapped = document.getElementById("raw-wrap")?.getAttribute("aria-pressed") === "true";
  shown = { box, text, rowPx, columnPx, isWrapped, columns: 0, layout: layOut("", 1) };
  box.dataset.shown = "whole";
  box.append(part("raw-space"), part("raw-rows"));
  box.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  new ResizeObserver(() => arrange(false)).observe(box);
  arrange(true);
}

/** @param {string} name */
function part(name) {
  const element = document.createElement("div");
  element.className = name;
  return element;
}

/** @param {HTMLElement} box */
function measure(box) {
  const probe = part("raw-row");
  const inner = document.createElement("span");
  inner.textContent = "0".repeat(100);
  probe.append(inner);
  box.append(probe);
  const measured = { rowPx: probe.getBoundingClientRect().height, columnPx: inner.getBoundingClientRect().width / 100 };
  probe.remove();
  return measured;
}

/** @param {boolean} isForced */
function arrange(isForced) {
  if (!shown) return;
  const { box, columnPx } = shown;
  const digits = String(shown.text.length).length;
  const room = Math.floor((box.clientWidth - 32) / columnPx) - digits - 3;
  const columns = shown.isWrapped ? Math.max(FEWEST_COLUMNS, room) : UNWRAPPED_COLUMNS;
  if (!isForced && columns === shown.columns) {
    draw();
    return;
  }
  const line = shown.layout.lines[firstRow()] ?? 0;
  shown.columns = columns;
  shown.layout = layOut(shown.text, columns);
  box.style.setProperty("--digits", String(String(shown.layout.lineCount).length));
  /** @type {HTMLElement} */ (box.querySelector(".raw-space")).style.height = `${height()}px`;
  if (!isForced) scrollTo(shown.layout.lines.indexOf(line));
  draw();
  const said = document.getElementById("raw-said");
  if (said) said.textContent = `${size(Number(box.dataset.size))}, ${shown.layout.lineCount.toLocaleString("en")} ${shown.layout.lineCount === 1 ? "line" : "lines"}${Number(box.dataset.size) > SHOWN_BYTES ? `; the first ${size(SHOWN_BYTES)} shown, download the rest` : ""}`;
}

/**
 * Cut a text into rows: the place where each starts, and the number of its line.
 * @param {string} text
 * @param {number} columns
 * @returns {Layout}
 */
export function layOut(text, columns) {
  let starts = new Uint32Array(1024);
  let lines = new Uint32Array(1024);
  let rows = 0;
  let line = 0;
  /** @param {number} at */
  const push = (at) => {
    if (rows === starts.length) {
      starts = grown(starts);
      lines = grown(lines);
    }
    starts[rows] = at;
    lines[rows] = line;
    rows += 1;
  };
  for (let at = 0; ; line += 1) {
    const found = text.indexOf("\n", at);
    const end = found < 0 ? text.length : found;
    push(at);
    for (let next = cut(text, at, end, columns); next < end; next = cut(text, next, end, columns)) push(next);
    if (found < 0) break;
    at = found + 1;
  }
  return { text, starts, lines: lines.subarray(0, rows), rows, lineCount: line + 1 };
}

/** @param {Uint32Array} array */
function grown(array) {
  const larger = new Uint32Array(array.length * 2);
  larger.set(array);
  return larger;
}

/**
 * Find where a row that starts here has to end: wide characters count twice, and no character is cut in two.
 * @param {string} text
 * @param {number} at
 * @param {number} end
 * @param {number} columns
 */
function cut(text, at, end, columns) {
  let left = columns;
  let next = at;
  while (next < end) {
    const code = text.charCodeAt(next);
    const isPair = code >= 0xd800 && code < 0xdc00 && next + 1 < end;
    left -= columnsOf(text, next, code);
    if (left < 0 && next > at) break;
    next += isPair ? 2 : 1;
  }
  return next;
}

/**
 * Count the columns that a character takes: a hidden one those of its escape.
 * @param {string} text
 * @param {number} at
 * @param {number} code
 */
function columnsOf(text, at, code) {
  if (code === 9) return 8;
  if (code >= 0x20 && code < 0x7f) return 1;
  const mayHide = code < 0x100 || (code >= 0x2000 && code < 0x2070) || code >= 0xfe00 || (code >= 0xd800 && code < 0xdc00) || RARELY.has(code);
  if (mayHide) {
    const char = String.fromCodePoint(text.codePointAt(at) ?? 0);
    const escape = visible(char);
    if (escape !== char) return escape.length;
  }
  return code < 0x1100 ? 1 : 2;
}

const RARELY = new Set([0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180c, 0x180d, 0x180e, 0x180f, 0x3164]);

// --- scrolling -------------------------------------------------------------------------------------

function height() {
  if (!shown) return 0;
  return Math.min(shown.layout.rows * shown.rowPx, TALLEST_PX);
}

function rowsInView() {
  return shown ? Math.ceil(shown.box.clientHeight / shown.rowPx) : 0;
}

function firstRow() {
  if (!shown || shown.layout.rows <= rowsInView()) return 0;
  const scrollable = height() - shown.box.clientHeight;
  if (height() < TALLEST_PX || scrollable <= 0) return Math.floor(shown.box.scrollTop / shown.rowPx);
  return Math.round((shown.box.scrollTop / scrollable) * (shown.layout.rows - rowsInView() + 1));
}

/** @param {number} row */
function scrollTo(row) {
  if (!shown) return;
  const isInProportion = height() >= TALLEST_PX;
  const scrollable = height() - shown.box.clientHeight;
  shown.box.scrollTop = isInProportion ? (row / (shown.layout.rows - rowsInView() + 1)) * scrollable : row * shown.rowPx;
}

function draw() {
  if (!shown) return;
  const { box, layout, rowPx } = shown;
  const first = firstRow();
  const from = Math.max(0, first - SPARE_ROWS);
  const to = Math.min(layout.rows, first + rowsInView() + SPARE_ROWS);
  const rows = /** @type {HTMLElement} */ (box.querySelector(".raw-rows"));
  const elements = [];
  for (let row = from; row < to; row += 1) elements.push(rowOf(layout, row));
  rows.replaceChildren(...elements);
  const top = height() < TALLEST_PX ? from * rowPx : box.scrollTop - (first - from) * rowPx;
  rows.style.transform = `translateY(${top}px)`;
}

/**
 * @param {Layout} layout
 * @param {number} row
 */
function rowOf(layout, row) {
  const element = part("raw-row");
  const line = layout.lines[row];
  const isContinued = row > 0 && layout.lines[row - 1] === line;
  element.dataset.line = isContinued ? "" : String(line + 1);
  const from = layout.starts[row];
  let to = row + 1 < layout.rows ? layout.starts[row + 1] : layout.text.length;
  if (layout.text[to - 1] === "\n" && to > from && layout.lines[row + 1] !== line) to -= 1;
  element.append(...marked(layout.text.slice(from, to)));
  return element;
}

/** @param {Document} root */
export function listenForRaw(root) {
  root.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("#raw-wrap, #raw-copy") : null;
    if (!(button instanceof HTMLElement) || !shown) return;
    if (button.id === "raw-copy") {
      void copyText(shown.text).then((isCopied) => announce(isCopied ? "Copied" : "The browser refused to copy"));
      return;
    }
    shown.isWrapped = !shown.isWrapped;
    button.setAttribute("aria-pressed", String(shown.isWrapped));
    shown.box.classList.toggle("unwrapped", !shown.isWrapped);
    shown.columns = 0;
    arrange(false);
  });
}
