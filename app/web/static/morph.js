/**
 * Morphing: makes what is shown equal to a newer piece of page, and touches only what differs.
 *
 * An element is recognised by `data-key` or its id, so that scroll, selection, focus and open panels stay where they
 * are. What a reader did stays theirs: an open `<details>`, what stands in a field that has the focus.
 */

/**
 * @param {Element} shown
 * @param {Element} next
 */
export function morph(shown, next) {
  const focused = document.activeElement;
  morphElement(shown, next);
  // A node that was moved has lost the focus.
  if (focused instanceof HTMLElement && focused !== document.activeElement && shown.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}

/**
 * @param {Element} shown
 * @param {Element} next
 */
function morphElement(shown, next) {
  if (shown.isEqualNode(next) || shown.hasAttribute("data-keep")) return;
  if (shown === document.activeElement && shown.matches("input, select, textarea")) return;
  morphAttributes(shown, next);
  morphChildren(shown, next);
}

const READERS = new Set(["open", "data-said"]);

/**
 * @param {Element} shown
 * @param {Element} next
 */
function morphAttributes(shown, next) {
  for (const { name } of [...shown.attributes]) {
    if (!next.hasAttribute(name) && !READERS.has(name)) shown.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (shown.getAttribute(name) !== value && !READERS.has(name)) shown.setAttribute(name, value);
  }
}

/**
 * @param {Element} shown
 * @param {Element} next
 */
function morphChildren(shown, next) {
  const wantedKeys = new Set([...next.children].map(keyOf));
  /** @type {Map<string, Element>} */
  const byKey = new Map();
  for (const child of [...shown.children]) {
    const key = keyOf(child);
    if (key === null) continue;
    if (wantedKeys.has(key)) byKey.set(key, child);
    else child.remove();
  }
  /** @type {ChildNode | null} */
  let place = shown.firstChild;
  for (const wanted of [...next.childNodes]) {
    const key = keyOf(wanted);
    const match = key === null ? like(place, wanted) : (byKey.get(key) ?? null);
    if (match === null) {
      shown.insertBefore(document.importNode(wanted, true), place);
      continue;
    }
    while (place !== null && place !== match && keyOf(place) === null) place = dropped(place);
    if (match === place) place = place.nextSibling;
    else shown.insertBefore(match, place);
    if (match instanceof Element && wanted instanceof Element) morphElement(match, wanted);
    else if (match.nodeValue !== wanted.nodeValue) match.nodeValue = wanted.nodeValue;
  }
  while (place !== null) place = dropped(place);
}

/**
 * @param {ChildNode | null} place
 * @param {Node} wanted
 * @returns {ChildNode | null}
 */
function like(place, wanted) {
  return place !== null && keyOf(place) === null && place.nodeName === wanted.nodeName ? place : null;
}

/**
 * @param {ChildNode} node
 * @returns {ChildNode | null}
 */
function dropped(node) {
  const after = node.nextSibling;
  node.remove();
  return after;
}

/**
 * @param {Node} node
 * @returns {string | null}
 */
function keyOf(node) {
  return node instanceof Element ? (node.getAttribute("data-key") ?? (node.id || null)) : null;
}
