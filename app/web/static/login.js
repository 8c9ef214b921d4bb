/**
 * The login: a link from another site arrives without our cookie (SameSite=Strict), though the reader has logged in.
 * Asked from here, by a page of our own, the server sees the cookie, and the reader goes on at once.
 */

const next = document.querySelector("input[name=next]");

if (next instanceof HTMLInputElement) {
  const answer = await fetch(next.value, { method: "HEAD", redirect: "manual", cache: "no-store" });
  if (answer.ok) location.replace(next.value);
}
