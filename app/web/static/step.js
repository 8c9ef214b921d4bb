/** The page of a step: its tree, its raw text, and curl lines that name the server as this browser reaches it. */

import { onContent, enhance } from "./content.js";
import { adoptRaw, listenForRaw } from "./raw.js";
import { adoptTree, listenForTree } from "./tree.js";

/** @param {ParentNode} root */
function nameServer(root) {
  for (const line of root.querySelectorAll("[data-curl]")) {
    const text = line.textContent ?? "";
    if (text.includes('"$STEPPLANE_SERVER/')) line.textContent = text.replace("$STEPPLANE_SERVER", location.origin);
  }
}

for (const enhancer of [nameServer, adoptTree, adoptRaw]) onContent(enhancer);
enhance(document);
listenForTree(document);
listenForRaw(document);
