/** The announcer: tells a screen reader, politely, what changed without being asked for. */

/** @param {string} text */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  if (announcer && text) announcer.textContent = text;
}
