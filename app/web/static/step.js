/** The page of a step: its tree and its raw text come alive, and whoever reads is told when something newer is there. */

import { onContent } from "./content.js";
import { adoptTree } from "./levels.js";
import { adoptRaw, listenForRaw } from "./raw.js";
import { listenForTree } from "./tree.js";
import { startWatching } from "./watch.js";

onContent(adoptTree);
adoptTree(document);
adoptRaw(document);
document.getElementById("main")?.addEventListener("stepplane:news", () => adoptRaw(document));
listenForTree(document);
listenForRaw(document);
startWatching();
