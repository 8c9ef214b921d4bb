/**
 * Watching: while a run goes on, asks now and then whether what is shown still answers, and says so when it does not.
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
  if (note instanceof HTMLElement && !document.hidden && (await isChanged(note))) {
    note.hidden = false;
    announce("There is a newer output");
    return;
  }
  setTimeout(watch, EVERY_MS);
}

/**
 * @param {HTMLElement} note
 * @returns {Promise<boolean>}
 */
async function isChanged(note) {
  try {
    const signal = AbortSignal.timeout(GIVE_UP_MS);
    const response = await fetch(note.dataset.watch ?? "", { method: "HEAD", cache: "no-store", redirect: "manual", signal });
    return response.ok && response.headers.get("etag") !== note.dataset.etag;
  } catch {
    return false; // the server is away: what it has then, the next look tells
  }
}
