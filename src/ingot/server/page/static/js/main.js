// The page starts here: it creates the parts and connects them.

import { modelNames, samplingDefaults, serverStatus } from "./api/client.js";
import { Composer } from "./chat/composer.js";
import { Transcript } from "./chat/transcript.js";
import { Dashboard } from "./dashboard/view.js";
import { find } from "./dom.js";
import { fillIcons } from "./icons.js";
import { Library } from "./model/library.js";
import { storageFull } from "./model/storage.js";
import { askForKey, showShortcuts } from "./shell/dialogs.js";
import { Drawers } from "./shell/drawers.js";
import { ModelChoice } from "./shell/models.js";
import { SettingsPanel } from "./shell/settings.js";
import { listenForShortcuts } from "./shell/shortcuts.js";
import { Sidebar } from "./shell/sidebar.js";
import { announce, toast } from "./shell/toast.js";

const RETRY = 3000; // milliseconds until a server that did not answer is asked again

const mouse = matchMedia("(pointer: fine)");

fillIcons(document);
const library = new Library();
const drawers = new Drawers();
const dashboard = new Dashboard();
const models = new ModelChoice(library, showContext);
const settings = new SettingsPanel(library, learn);
const sidebar = new Sidebar(library, write);
const transcript = new Transcript(library, {
  askKey: async (node) => {
    if (!(await askForKey())) return;
    learn();
    library.again(node);
  },
  begin,
  suggest: (text) => composer.begin(text),
  lostFocus: write,
});
const composer = new Composer(library, () => transcript.last("user")?.edit());
let contexts = new Map(); // how many tokens each model can see
let retry = null;

/** Fetch the server's models and defaults; retry until it responds. */
async function learn() {
  clearTimeout(retry);
  try {
    models.offer(await modelNames());
    find("#connection").hidden = true;
  } catch (failure) {
    if (failure.kind === "key") {
      if (await askForKey()) learn();
      return;
    }
    find("#connection").hidden = false;
    retry = setTimeout(learn, RETRY);
    return;
  }
  samplingDefaults().then(
    (found) => settings.showDefaults(found),
    () => {},
  );
  learnContexts();
}

async function learnContexts() {
  const status = await serverStatus().catch(() => null);
  if (status) contexts = new Map(status.models.map(({ name, context }) => [name, context]));
  showContext();
}

function showContext() {
  composer.showContext(contexts.get(models.name) ?? null);
}

/** Focus the message field, unless that opens an on-screen keyboard. */
function write() {
  if (mouse.matches) composer.focus();
}

/** Start a new conversation. */
function begin() {
  if (location.hash === "#/") route();
  else location.hash = "#/";
  write();
}

/** Show the view of the current URL. */
function route() {
  const [, view, id] = location.hash.split("/");
  const board = view === "dashboard";
  find("#chat").hidden = board;
  find("#dashboard").hidden = !board;
  find("#dashboard-link").ariaCurrent = board ? "page" : null;
  find("#app").classList.toggle("on-dashboard", board);
  dashboard.watch(board);
  if (!board) library.open(id);
  else if (!library.current) library.open(null);
  if (board) drawers.toggle("settings", false);
  drawers.closeOverlays();
  showTitle();
}

function showTitle() {
  const board = !find("#dashboard").hidden;
  const name = board ? "Dashboard" : library.current.title || "New conversation";
  find("#title").textContent = name;
  document.title = board || library.current.title ? `${name} · Ingot` : "Ingot";
}

function escape() {
  if (drawers.closeOverlays() || drawers.closeAround(document.activeElement)) return;
  library.generation(library.current)?.stop();
}

library.listed.listen(() => {
  showTitle();
  const { current } = library;
  if (location.hash !== "#/dashboard" && !current.empty && !location.hash.endsWith(current.id)) {
    history.replaceState(null, "", `#/chat/${current.id}`);
  }
});
library.shown.listen(showContext);
library.ended.listen((generation) => {
  if (generation.conversation === library.current) showContext();
  if (!contexts.get(models.name)) learnContexts(); // the model may have been loaded just now
  announce(generation.node.failure ? "The answer failed." : "The answer is complete.");
});
storageFull.listen(() =>
  toast("The browser's storage is full. Export and delete old conversations."),
);

/** A command that needs the chat in view, and the last message of a role in it. */
const onLast = (role, command) => () => {
  const view = find("#chat").hidden ? null : transcript.last(role);
  if (view) command(view);
};
listenForShortcuts({
  new: begin,
  search: () => {
    drawers.toggle("sidebar", true);
    sidebar.focusSearch();
  },
  composer: () => find("#chat").hidden || composer.focus(),
  sidebar: () => drawers.toggle("sidebar"),
  settings: () => find("#dashboard").hidden && drawers.toggle("settings"),
  dashboard: () => {
    location.hash = find("#dashboard").hidden ? "#/dashboard" : `#/chat/${library.current.id}`;
  },
  tokens: onLast("assistant", (answer) => answer.toggleTokens(true)),
  again: onLast("assistant", (answer) => library.again(answer.node)),
  edit: onLast("user", (question) => question.edit()),
  back: onLast("assistant", (answer) => library.turn(answer.node, -1)),
  on: onLast("assistant", (answer) => library.turn(answer.node, 1)),
  help: showShortcuts,
  escape,
});
for (const button of document.querySelectorAll("[data-do=new]"))
  button.addEventListener("click", begin);
find("#shortcuts").addEventListener("click", showShortcuts);
find("#retry-connection").addEventListener("click", learn);
addEventListener("hashchange", route);
route();
learn();
write();
