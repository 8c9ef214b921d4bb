/**
 * Visible text: what has no shape of its own, or turns its neighbours around, as its escape; as the server writes it.
 */

const PICTURE = "\\u00a9\\u00ae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u2bff\\u3030\\u303d\\u3297\\u3299\\u{1f000}-\\u{1faff}";
const JOINED = "\\u0600-\\u0dff";
const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f" +
  "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164" +
  "\\ufe00-\\ufe0d\\ufeff\\uffa0\\ufff0-\\ufffb" +
  "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]" +
  `|(?<![${PICTURE}])[\\ufe0e\\ufe0f]` +
  `|(?!(?<=[${PICTURE}\\ufe0f])\\u200d[${PICTURE}])(?!(?<=[${JOINED}])[\\u200c\\u200d][${JOINED}])[\\u200c\\u200d]`,
  "gu",
);

/**
 * Write a name or a sentence with its hidden characters as escapes.
 * @param {string} text
 */
export const visible = (text) => text.replace(HIDDEN, escaped);

/**
 * Make the pieces of a body: its text as it is, so that a selection copies what is there, and a mark before each
 * hidden character, which no selection takes.
 * @param {string} text
 * @returns {(string | HTMLElement)[]}
 */
export function marked(text) {
  /** @type {(string | HTMLElement)[]} */
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    const mark = document.createElement("span");
    mark.className = "hidden-char";
    mark.dataset.escape = escaped(match[0]);
    mark.append(match[0]);
    pieces.push(text.slice(from, match.index), mark);
    from = match.index + match[0].length;
  }
  pieces.push(text.slice(from));
  return pieces;
}

/** @param {string} char */
function escaped(char) {
  const code = char.codePointAt(0) ?? 0;
  const hex = code.toString(16);
  return code < 0x100 ? `\\x${hex.padStart(2, "0")}` : code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}
