/**
 * The tree of a value, by the pattern of WAI-ARIA: one node has the focus; arrows move it, open and close.
 *
 * A level is fetched when it is opened, a page of it at a time. What the server rendered are plain links; here they
 * become a tree. All listening is done on the document, so that a piece of page that comes later works as well.
 */

import { announce } from "./announcer.js";
import { copyText } from "./copy.js";
import { size } from "./formats.js";

const PAGE = 100;
const MOST_OPENED = 500;
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
const isOpen = (item) => item.getAttribute("aria-expanded") === "true";

/** @param {Element} item */
const isClosed = (item) => item.getAttribute("aria-expanded") === "false";

/**
 * @param {HTMLElement} item
 * @returns {Promise<boolean>} whether it is open now
 */
async function open(item) {
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
function close(item) {
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
  key.textContent = String(child.key);
  key.classList.toggle("index", typeof child.key === "number");
  key.href = pageOf(within, child.path);
  const value = /** @type {HTMLElement} */ (item.querySelector(".node-value > span"));
  value.className = child.child_count ? "node-count" : "node-preview";
  const [left, right] = child.type === "object" ? "{}" : "[]";
  value.textContent = child.child_count ? `${left} ${child.child_count} ${right}` : child.preview;
  /** @type {HTMLElement} */ (item.querySelector(".node-size")).textContent = size(child.size_bytes);
  return item;
}

/** @param {HTMLElement} item */
async function showMore(item) {
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
async function expandAll(tree) {
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
function collapseAll(tree) {
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
const treeOf = (within) => /** @type {HTMLElement} */ (within.closest("#tree"));

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
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

/** @param {unknown} error */
function explain(error) {
  return error instanceof Error && !(error instanceof TypeError) ? error.message : "The server does not answer";
}

/**
 * @param {HTMLElement} item
 * @param {HTMLElement} button
 */
async function copy(item, button) {
  const words = button.textContent;
  let isCopied = false;
  try {
    isCopied = await copyText(button.dataset.tool === "path" ? (item.dataset.path ?? "") : await valueOf(item));
    announce(isCopied ? "Copied" : "The browser refused to copy");
  } catch (error) {
    announce(explain(error));
  }
  button.textContent = isCopied ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = words; }, 1500);
}

/** @param {HTMLElement} item */
async function valueOf(item) {
  const url = withQuery(treeOf(item).dataset.content ?? "", { path: item.dataset.path });
  const response = await fetch(url, { cache: "no-cache" });
  if (!response.ok) throw new Error((await response.json()).error);
  if (Number(response.headers.get("content-length")) > COPIED_BYTES) throw new Error("Too large to copy: open and download it");
  return response.text();
}

// --- keyboard and pointer --------------------------------------------------------------------------

/** @param {HTMLElement} item */
function focus(item) {
  for (const other of treeOf(item).querySelectorAll('[tabindex="0"]')) other.setAttribute("tabindex", "-1");
  item.setAttribute("tabindex", "0");
  for (const tool of item.querySelectorAll(":scope > .node-row .tool")) tool.setAttribute("tabindex", "0");
  item.focus({ preventScroll: true });
  (item.querySelector(":scope > .node-row") ?? item).scrollIntoView({ block: "nearest" });
}

/** @param {HTMLElement} tree */
function visible(tree) {
  const items = /** @type {HTMLElement[]} */ ([...tree.querySelectorAll('[role="treeitem"]')]);
  return items.filter((item) => {
    for (let up = item.parentElement?.closest("li"); up; up = up.parentElement?.closest("li")) if (!isOpen(up)) return false;
    return true;
  });
}

/**
 * @param {KeyboardEvent} event
 * @param {HTMLElement} item
 */
function move(event, item) {
  const items = visible(treeOf(item));
  const at = items.indexOf(item);
  const parent = item.parentElement?.closest("li");
  const child = item.querySelector(":scope > ul > li");
  switch (event.key) {
    case "ArrowDown": return items[at + 1];
    case "ArrowUp": return items[at - 1];
    case "Home": return items[0];
    case "End": return items[items.length - 1];
    case "ArrowRight":
      if (isClosed(item)) void open(item);
      return isOpen(item) && child instanceof HTMLElement ? child : item;
    case "ArrowLeft":
      if (!isOpen(item)) return parent instanceof HTMLElement ? parent : item;
      close(item);
      return item;
    case "*":
      for (const sibling of item.parentElement?.children ?? []) void open(/** @type {HTMLElement} */ (sibling));
      return item;
    case " ":
    case "Enter":
      act(item);
      return item;
    default:
      return event.key.length === 1 && event.key !== " " ? byLetter(items, at, event.key) : undefined;
  }
}

/**
 * @param {HTMLElement[]} items
 * @param {number} at
 * @param {string} letter
 */
function byLetter(items, at, letter) {
  const wanted = letter.toLocaleLowerCase();
  const after = [...items.slice(at + 1), ...items.slice(0, at)];
  return after.find((each) => each.querySelector(".node-key")?.textContent?.toLocaleLowerCase().startsWith(wanted));
}

/** @param {HTMLElement} item */
function act(item) {
  if (item.classList.contains("more")) void showMore(item);
  else if (isOpen(item)) close(item);
  else if (isClosed(item)) void open(item);
  else /** @type {HTMLElement | null} */ (item.querySelector(".node-key"))?.click();
}

/** @param {Document} root */
export function listenForTree(root) {
  root.addEventListener("keydown", (event) => {
    const item = event.target;
    if (!(item instanceof HTMLElement) || item.getAttribute("role") !== "treeitem") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = move(event, item);
    if (!next) return;
    event.preventDefault();
    if (next.isConnected) focus(next);
  });
  root.addEventListener("focusin", (event) => {
    const tools = event.target instanceof Element ? event.target.closest('[role="treeitem"]') : null;
    if (tools instanceof HTMLElement && event.target === tools && tools.getAttribute("tabindex") !== "0") focus(tools);
  });
  root.addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const control = event.target.closest("[data-tree]");
    const tree = document.getElementById("tree");
    if (control instanceof HTMLElement && tree) {
      if (control.dataset.tree === "expand") void expandAll(tree);
      else collapseAll(tree);
    }
    const item = event.target.closest('[role="treeitem"]');
    if (item instanceof HTMLElement) clickItem(event, event.target, item);
  });
}

/**
 * @param {Event} event
 * @param {Element} target
 * @param {HTMLElement} item
 */
function clickItem(event, target, item) {
  const tool = target.closest(".tool");
  if (tool instanceof HTMLElement) {
    void copy(item, tool);
    return;
  }
  if (item.classList.contains("more")) event.preventDefault();
  else if (target.closest("a") || !target.closest(".node-row")) return;
  focus(item);
  if (item.classList.contains("more") || item.hasAttribute("aria-expanded")) act(item);
}
