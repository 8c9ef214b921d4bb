/**
 * The levels of a tree: how nodes are made, opened a page at a time, and closed.
 *
 * A level is fetched when it is opened. What the server rendered are plain links; here they become nodes of a tree.
 */

import { announce } from "./announcer.js";
import { size } from "./formats.js";
import { visible } from "./visible.js";

const PAGE = 100;
const MOST_OPENED = 200;
const COPIED_BYTES = 8 * 1024 * 1024;

/** @typedef {{key: string | number, path: string, type: string, size_bytes: number, child_count: number, preview: string}} Child */
/** @typedef {{children: Child[], child_count: number, next_cursor: string | null}} Outline */

// --- making it a tree ------------------------------------------------------------------------------

/** @param {ParentNode} root */
export function adoptTree(root) {
  const tree = root.querySelector("#tree");
  if (!(tree instanceof HTMLElement) || tree.getAttribute("role") === "tree") return;
  tree.setAttribute("role", "tree");
  adoptItems(tree, 1);
  tree.querySelector("li")?.setAttribute("tabindex", "0");
}

/**
 * @param {Element} list
 * @param {number} level
 */
function adoptItems(list, level) {
  const items = [...list.children].filter((each) => each instanceof HTMLElement);
  for (const item of items) {
    if (item.getAttribute("role") === "treeitem") continue;
    item.setAttribute("role", "treeitem");
    item.setAttribute("aria-level", String(level));
    item.setAttribute("tabindex", "-1");
    for (const inner of item.querySelectorAll("a, button")) inner.setAttribute("tabindex", "-1");
    if (item.classList.contains("more")) labelMore(item, list);
    else labelNode(item);
  }
}

/** @param {Element} item */
function labelNode(item) {
  const data = /** @type {HTMLElement} */ (item).dataset;
  const count = Number(data.count);
  const key = item.querySelector(".node-key")?.textContent ?? "";
  const preview = item.querySelector(".node-preview")?.textContent ?? "";
  if (count) item.setAttribute("aria-expanded", "false");
  item.setAttribute("aria-label", count ? `${key}: ${data.type}, ${count} inside` : `${key}: ${preview}`);
}

/**
 * @param {Element} item
 * @param {Element} list
 */
function labelMore(item, list) {
  const shown = list.children.length - 1;
  const of = Number(/** @type {HTMLElement} */ (item).dataset.of);
  const words = `Show ${Math.min(PAGE, of - shown)} more of ${of.toLocaleString("en")}`;
  item.setAttribute("aria-label", words);
  const link = item.querySelector("a");
  if (link) link.textContent = words;
}

// --- opening and closing ---------------------------------------------------------------------------

/** @param {Element} item */
export const isOpen = (item) => item.getAttribute("aria-expanded") === "true";

/** @param {Element} item */
export const isClosed = (item) => item.getAttribute("aria-expanded") === "false";

/**
 * @param {HTMLElement} item
 * @returns {Promise<boolean>} whether it is open now
 */
export async function open(item) {
  if (!isClosed(item)) return isOpen(item);
  if (!item.querySelector(":scope > ul")) {
    item.setAttribute("aria-busy", "true");
    try {
      const outline = await fetchOutline(item, item.dataset.path ?? "", undefined);
      if (!item.querySelector(":scope > ul")) item.append(group(item, outline));
    } catch (error) {
      announce(explain(error));
      return false;
    } finally {
      item.removeAttribute("aria-busy");
    }
  }
  item.setAttribute("aria-expanded", "true");
  return true;
}

/** @param {HTMLElement} item */
export function close(item) {
  if (!isOpen(item)) return;
  if (item.contains(document.activeElement)) focus(item);
  item.setAttribute("aria-expanded", "false");
}

/**
 * @param {HTMLElement} item
 * @param {Outline} outline
 */
function group(item, outline) {
  const list = document.createElement("ul");
  list.setAttribute("role", "group");
  appendPage(list, outline, Number(item.getAttribute("aria-level")) + 1, item);
  return list;
}

/**
 * @param {Element} list
 * @param {Outline} outline
 * @param {number} level
 * @param {Element} within
 */
function appendPage(list, outline, level, within) {
  const nodes = outline.children.map((child) => nodeOf(child, within));
  list.append(...nodes);
  if (outline.next_cursor !== null) {
    const more = document.createElement("li");
    more.className = "more";
    more.dataset.cursor = outline.next_cursor;
    more.dataset.of = String(outline.child_count);
    more.append(document.createElement("a"));
    list.append(more);
  }
  adoptItems(list, level);
  return nodes;
}

/**
 * @param {Child} child
 * @param {Element} within
 */
function nodeOf(child, within) {
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById("node"));
  const item = /** @type {HTMLElement} */ (template.content.querySelector("li")?.cloneNode(true));
  Object.assign(item.dataset, { path: child.path, type: child.type, count: String(child.child_count) });
  const key = /** @type {HTMLAnchorElement} */ (item.querySelector(".node-key"));
  key.textContent = visible(String(child.key));
  key.classList.toggle("index", typeof child.key === "number");
  key.href = pageOf(within, child.path);
  const value = /** @type {HTMLElement} */ (item.querySelector(".node-value > span"));
  value.className = child.child_count ? "node-count" : "node-preview";
  const [left, right] = child.type === "object" ? "{}" : "[]";
  value.textContent = child.child_count ? `${left} ${child.child_count} ${right}` : visible(child.preview);
  /** @type {HTMLElement} */ (item.querySelector(".node-size")).textContent = size(child.size_bytes);
  return item;
}

/** @param {HTMLElement} item */
export async function showMore(item) {
  const list = /** @type {HTMLElement} */ (item.parentElement);
  const parent = list.closest("li");
  const tree = treeOf(item);
  item.setAttribute("aria-busy", "true");
  try {
    const path = parent instanceof HTMLElement ? (parent.dataset.path ?? "") : (tree.dataset.path ?? "");
    const outline = await fetchOutline(item, path, item.dataset.cursor);
    const level = Number(item.getAttribute("aria-level"));
    const had = item.contains(document.activeElement);
    item.remove();
    const [first] = appendPage(list, outline, level, list);
    if (had && first) focus(first);
    announce(`${outline.children.length} more`);
  } catch (error) {
    item.removeAttribute("aria-busy");
    announce(explain(error));
  }
}

/**
 * Open level by level until all is open, or as many nodes as a page bears.
 * @param {HTMLElement} tree
 */
export async function expandAll(tree) {
  let waiting = [...tree.querySelectorAll(":scope > li.node")];
  let left = MOST_OPENED;
  while (waiting.length && left > 0) {
    const closed = waiting.filter((each) => each.hasAttribute("aria-expanded")).slice(0, left);
    left -= closed.length;
    waiting = [];
    for (let at = 0; at < closed.length; at += 6) {
      const some = /** @type {HTMLElement[]} */ (closed.slice(at, at + 6));
      await Promise.all(some.map(open));
    }
    waiting = closed.flatMap((each) => [...each.querySelectorAll(":scope > ul > li.node")]);
  }
  const isAll = ![...tree.querySelectorAll("li")].some(isClosed);
  announce(isAll ? "All expanded" : `Expanded ${MOST_OPENED} nodes; open the others one by one`);
  tell(tree, isAll ? "" : `${MOST_OPENED} nodes are open, which is as many as this opens at once.`);
}

/** @param {HTMLElement} tree */
export function collapseAll(tree) {
  for (const item of tree.querySelectorAll('li[aria-expanded="true"]')) item.setAttribute("aria-expanded", "false");
  const first = tree.querySelector("li");
  for (const item of tree.querySelectorAll('li[tabindex="0"]')) item.setAttribute("tabindex", "-1");
  first?.setAttribute("tabindex", "0");
  tell(tree, "");
}

/**
 * @param {HTMLElement} tree
 * @param {string} words
 */
function tell(tree, words) {
  let place = document.getElementById("tree-said");
  if (!place) {
    place = document.createElement("p");
    place.id = "tree-said";
    place.className = "muted small";
    tree.before(place);
  }
  place.textContent = words;
  place.hidden = !words;
}

// --- asking the server -----------------------------------------------------------------------------

/** @param {Element} within */
export const treeOf = (within) => /** @type {HTMLElement} */ (within.closest("#tree"));

/**
 * @param {string} url
 * @param {Record<string, string | undefined>} given
 */
function withQuery(url, given) {
  const pairs = Object.entries(given).filter(([, value]) => value !== undefined);
  if (!pairs.length) return url;
  const query = pairs.map(([key, value]) => `${key}=${encoded(value ?? "")}`).join("&");
  return `${url}${url.includes("?") ? "&" : "?"}${query}`;
}

/**
 * Percent-encode a text. One with half a character in it has no form that a URL could carry: it is sent as U+FFFD.
 * @param {string} text
 */
function encoded(text) {
  return encodeURIComponent(text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd"));
}

/**
 * @param {Element} within
 * @param {string} path
 */
const pageOf = (within, path) => withQuery(treeOf(within).dataset.page ?? "", { path });

/**
 * @param {Element} within
 * @param {string} path
 * @param {string | undefined} cursor
 * @returns {Promise<Outline>}
 */
async function fetchOutline(within, path, cursor) {
  const url = withQuery(treeOf(within).dataset.outline ?? "", { path, limit: String(PAGE), cursor });
  const response = await fetch(url, { cache: "no-cache" });
  if (!response.ok) throw new Error(await refusal(response));
  return response.json();
}

/** @param {Response} response */
async function refusal(response) {
  const isJson = response.headers.get("content-type") === "application/json";
  return isJson ? (await response.json()).error : `The server answered ${response.status}`;
}

/** @param {unknown} error */
export function explain(error) {
  return error instanceof Error && !(error instanceof TypeError) ? error.message : "The server does not answer";
}

/** @param {HTMLElement} item */
export async function valueOf(item) {
  const url = withQuery(treeOf(item).dataset.content ?? "", { path: item.dataset.path });
  const response = await fetch(url, { cache: "no-cache" });
  if (!response.ok) throw new Error(await refusal(response));
  if (Number(response.headers.get("content-length")) > COPIED_BYTES) throw new Error("Too large to copy: open and download it");
  return response.text();
}

// --- the focus --------------------------------------------------------------------------------------

/** @param {HTMLElement} item */
export function focus(item) {
  for (const other of treeOf(item).querySelectorAll('[tabindex="0"]')) other.setAttribute("tabindex", "-1");
  item.setAttribute("tabindex", "0");
  for (const tool of item.querySelectorAll(":scope > .node-row :is(.tool, .node-key)")) tool.setAttribute("tabindex", "0");
  item.focus({ preventScroll: true });
  (item.querySelector(":scope > .node-row") ?? item).scrollIntoView({ block: "nearest" });
}
