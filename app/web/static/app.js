/**
 * What every page has: local times, copy buttons, and, where the page asks for it, live updates.
 * Nothing here is needed to read a page.
 */

import { enhance, onContent } from "./content.js";
import { listenForCopies } from "./copy.js";
import { startLive } from "./live.js";
import { nameOrigin } from "./origin.js";
import { localise } from "./times.js";

document.documentElement.classList.add("scripted");
onContent(localise);
onContent(nameOrigin);
enhance(document);
listenForCopies(document);
startLive();
