/**
 * Watching: while a run goes on, asks now and then what became of the step that is shown, and says what is newer.
 *
 * The page itself stays as it is: whoever reads in it should not lose the place.
 */

import { announce } from "./announcer.js";

const EVERY_MS = 2000;
const GIVE_UP_MS = 8000;

/** Watch the output that the page shows. */
export function startWatching() {
  setTimeout(watch, EVERY_MS);
}

async function watch() {
  const note = document.getElementById("newer");
  const news = note && !document.hidden ? await ask(note.dataset.watch ?? "") : null;
  if (note && news) tell(note, news);
  if (!news?.is_over) setTimeout(watch, EVERY_MS);
}

/**
 * @typedef {{ sentence: string, is_there: boolean, is_over: boolean }} News
 * @param {string} url
 * @returns {Promise<News | null>}
 */
async function ask(url) {
  try {
    const signal = AbortSignal.timeout(GIVE_UP_MS);
    const response = await fetch(url, { cache: "no-store", redirect: "manual", signal });
    return response.ok ? await response.json() : null;
  } catch {
    return null; // the server is away: what it has then, the next look tells
  }
}

/**
 * @param {HTMLElement} note
 * @param {News} news
 */
function tell(note, news) {
  const said = note.querySelector("#news");
  const link = note.querySelector("a");
  if (!said || !link) return;
  link.hidden = !news.is_there;
  note.hidden = news.sentence === "";
  if (said.textContent === news.sentence) return;
  said.textContent = news.sentence;
  if (news.sentence) announce(news.sentence);
}
