/**
 * Rows that stay: a page asks for news of itself with the marks of the rows that it shows, and gets those that changed.
 *
 * In the place of rows that stay comes one element with `data-same="first last"`: their marks. They are put back before
 * anything else looks at the newer page, so that nobody else has to know of it.
 */

/** @typedef {{headers: Record<string, string>, putInto: (page: Document) => void}} ShownRows */

/**
 * Note which rows are shown, list by list: what is answered to the headers is complete with them.
 * @returns {ShownRows}
 */
export function shownRows() {
  /** @type {Map<Element | null, Element[]>} */
  const lists = new Map();
  for (const row of document.querySelectorAll("[data-mark]")) {
    const list = lists.get(row.parentElement);
    if (list) list.push(row);
    else lists.set(row.parentElement, [row]);
  }
  const told = [...lists.values()].map((rows) => rows.map(markOf).join("")).join(".");
  return {
    headers: told ? { "Stepplane-Shown": told } : {},
    putInto: (page) => putInto(page, [...lists.values()]),
  };
}

/** @param {Element} row */
const markOf = (row) => row.getAttribute("data-mark") ?? "";

/**
 * @param {Document} page
 * @param {Element[][]} lists
 */
function putInto(page, lists) {
  const places = new Map(lists.flatMap((rows) => rows.map((row, at) => [markOf(row), { rows, at }])));
  for (const stay of page.querySelectorAll("[data-same]")) {
    const [first, last] = (stay.getAttribute("data-same") ?? "").split(" ").map((mark) => places.get(mark));
    if (!first || !last) throw new Error("a row that stays was never shown");
    stay.replaceWith(...first.rows.slice(first.at, last.at + 1).map((row) => page.importNode(row, true)));
  }
}
