/**
 * Content: what is done to every piece of a page, when it is first shown and when a newer one comes in.
 *
 * A newer piece is enhanced before it is compared with what is shown, so that nothing flickers.
 */

/** @typedef {(root: ParentNode) => void} Enhancer */

/** @type {Enhancer[]} */
const enhancers = [];

/**
 * Have a function run over the page now and over every newer piece of it.
 * @param {Enhancer} enhancer
 */
export function onContent(enhancer) {
  enhancers.push(enhancer);
}

/** @param {ParentNode} root */
export function enhance(root) {
  for (const enhancer of enhancers) enhancer(root);
}
