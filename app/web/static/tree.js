/**
 * The tree of a value, by the pattern of WAI-ARIA: one node has the focus; arrows move it, open and close.
 *
 * All listening is done on the document, so that a piece of page that comes later works as well.
 */

import { announce } from "./announcer.js";
import { copyText } from "./copy.js";
import { close, collapseAll, expandAll, explain, focus, isClosed, isOpen, open, showMore, treeOf, valueOf } from "./levels.js";

const SAID_MS = 1500;
const MOVES = new Set(["ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft", "Home", "End"]);

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
      if (isOpen(item)) return child instanceof HTMLElement ? child : item;
      void open(item);
      return item;
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
    const item = event.target instanceof Element ? event.target.closest('[role="treeitem"]') : null;
    if (!(item instanceof HTMLElement) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target !== item && !MOVES.has(event.key)) return; // a link or button inside it takes the other keys
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
  setTimeout(() => { button.textContent = words; }, SAID_MS);
}
