/**
 * Live pages: asks for the page again while it may change, and puts what is new into what is shown.
 *
 * Of rows that did not change the server sends nothing (`rows.js`). A page says `data-poll="milliseconds"` on `<main>` for as long as it may change, and `data-etag` for what it shows;
 * every element with `data-live` and an id is kept up to date. Links and forms with `data-soft` (order, filter, next
 * page) take the same way, and so lose neither scroll nor focus.
 */

import { announce } from "./announcer.js";
import { enhance } from "./content.js";
import { morph } from "./morph.js";
import { shownRows } from "./rows.js";
import { keepTicking, setClock } from "./times.js";

const TICK_MS = 1000;
const SLOWEST_MS = 15_000;
const GIVE_UP_MS = 10_000;
const TYPING_MS = 200;

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
let failures = 0;
let look = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

export function startLive() {
  setClock(document);
  keepTicking(TICK_MS);
  listenForSoftMoves();
  if (!main.dataset.poll) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : void refresh()));
  addEventListener("online", () => void refresh());
  tell("on", "Live");
  schedule();
}

function schedule() {
  clearTimeout(timer);
  if (!main.dataset.poll) tell("off", "");
  else if (!document.hidden) {
    timer = setTimeout(() => void refresh(), Math.min(Number(main.dataset.poll) * 2 ** failures, SLOWEST_MS));
  }
}

function pause() {
  clearTimeout(timer);
  if (main.dataset.poll) tell("paused", "Paused");
}

/** Ask for the page once, take what is new, and ask again later. */
async function refresh() {
  clearTimeout(timer);
  const mine = ++look;
  try {
    const { response, page } = await fetchPage(location.href, main.dataset.etag);
    if (mine !== look) return; // a later look is under way
    if (response.type === "opaqueredirect") return ended();
    if (page) take(page);
    else if (response.status === 404) return gone();
    else if (response.status !== 304) throw new Error(String(response.status));
    if (failures) announce("The server is back");
    failures = 0;
    tell("on", "Live");
  } catch {
    if (mine !== look) return;
    if (!failures) announce("The server does not answer; trying again");
    failures += 1;
    tell("away", "Server away, trying again");
  }
  schedule();
}

/**
 * Ask for a page, and put into it the rows that stay as they are shown.
 * @param {string} url
 * @param {string | undefined} etag
 * @returns {Promise<{response: Response, page: Document | null}>} no page where the answer is none
 */
async function fetchPage(url, etag) {
  const shown = shownRows();
  const headers = etag ? { "If-None-Match": etag, ...shown.headers } : shown.headers;
  const response = await fetch(url, { headers, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(GIVE_UP_MS) });
  if (response.status !== 200) return { response, page: null };
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  shown.putInto(page);
  return { response, page };
}

/** @param {Document} page */
function take(page) {
  const next = page.getElementById("main");
  if (!next) throw new Error("no page");
  setClock(page);
  enhance(page);
  const before = said(document);
  for (const region of document.querySelectorAll("[data-live][id]")) {
    const newer = page.getElementById(region.id);
    if (newer) morph(region, newer);
  }
  for (const name of ["data-poll", "data-etag", "data-now"]) {
    const value = next.getAttribute(name);
    if (value === null) main.removeAttribute(name);
    else main.setAttribute(name, value);
  }
  document.title = page.title;
  const news = [...said(document)].filter((each) => !before.has(each));
  announce(news.length > 3 ? `${news.length} changes` : news.join("; "));
  main.dispatchEvent(new CustomEvent("stepplane:news"));
}

/**
 * @param {Document} page
 * @returns {Set<string>}
 */
function said(page) {
  return new Set([...page.querySelectorAll("[data-say]")].map((each) => each.getAttribute("data-say") ?? ""));
}

function ended() {
  clearTimeout(timer);
  tell("away", "Logged out: reload to log in");
  announce("The session has ended; reload the page to log in");
}

function gone() {
  clearTimeout(timer);
  tell("away", "Removed from the server");
  announce("This was removed from the server");
}

/**
 * @param {"on" | "off" | "paused" | "away"} state
 * @param {string} word
 */
function tell(state, word) {
  const live = /** @type {HTMLElement} */ (document.getElementById("live"));
  const place = /** @type {HTMLElement} */ (document.getElementById("live-word"));
  live.hidden = state === "off";
  live.dataset.state = state;
  if (place.textContent !== word) place.textContent = word;
}

// --- soft moves ------------------------------------------------------------------------------------

function listenForSoftMoves() {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-soft]") : null;
    if (!(link instanceof HTMLAnchorElement) || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    void move(link.href);
  });
  document.addEventListener("submit", (event) => {
    if (!(event.target instanceof HTMLFormElement) || !event.target.matches("[data-soft]")) return;
    event.preventDefault();
    void move(target(event.target));
  });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  document.addEventListener("input", (event) => {
    const form = event.target instanceof Element ? event.target.closest("form[data-soft]") : null;
    if (!(form instanceof HTMLFormElement)) return;
    clearTimeout(typing);
    typing = setTimeout(() => void move(target(form)), TYPING_MS);
  });
}

/**
 * @param {HTMLFormElement} form
 * @returns {string} where it leads; fields that say nothing are left away
 */
function target(form) {
  const url = new URL(form.action);
  url.search = "";
  for (const [name, value] of new FormData(form)) {
    if (typeof value === "string" && value) url.searchParams.set(name, value);
  }
  return url.href;
}

/**
 * Show another state of this page; where that fails, go there as a browser does without scripts.
 * @param {string} url
 */
async function move(url) {
  clearTimeout(timer);
  const mine = ++look;
  try {
    const { response, page } = await fetchPage(url, undefined);
    if (!page) throw new Error(String(response.status));
    if (mine !== look) return;
    history.replaceState(null, "", url);
    take(page);
  } catch {
    if (mine === look) location.assign(url);
    return;
  }
  schedule();
}
