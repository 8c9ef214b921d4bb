/** The origin: command lines name the server as this browser reaches it. */

/** @param {ParentNode} root */
export function nameOrigin(root) {
  for (const place of root.querySelectorAll("[data-here]")) place.textContent = location.origin;
}
