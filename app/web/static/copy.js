/** Copying: a button with `data-copy="text"`, or `data-copy-from="#id"`, puts that text on the clipboard. */

import { announce } from "./announcer.js";

const SAID_MS = 1500;

/** @param {Document} root */
export function listenForCopies(root) {
  root.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy], [data-copy-from]") : null;
    if (button instanceof HTMLElement) void copyFrom(button);
  });
}

/**
 * Copy a text, and tell whether that worked.
 * @param {string} text
 * @returns {Promise<boolean>}
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // the clipboard is closed to pages that come by plain HTTP from another machine
  }
}

/** @param {HTMLElement} button */
async function copyFrom(button) {
  const source = button.dataset.copyFrom ? document.querySelector(button.dataset.copyFrom) : null;
  const isCopied = await copyText(button.dataset.copy ?? source?.textContent ?? "");
  announce(isCopied ? "Copied" : "The browser refused to copy");
  if (!isCopied) return;
  button.dataset.said = "copied";
  setTimeout(() => delete button.dataset.said, SAID_MS);
}

/**
 * @param {string} text
 * @returns {boolean}
 */
function copyBySelection(text) {
  const area = document.createElement("textarea");
  const focused = document.activeElement;
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
  return isCopied;
}
