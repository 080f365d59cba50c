// The page starts here: it creates the parts and connects them.

import { listModels, samplingDefaults, serverStatus } from "./api/client.js";
import { Composer } from "./chat/composer.js";
import { Transcript } from "./chat/transcript.js";
import { Compare } from "./compare/view.js";
import { Dashboard } from "./dashboard/view.js";
import { find } from "./dom.js";
import { fillIcons } from "./icons.js";
import { Library } from "./model/library.js";
import { storageFull } from "./model/storage.js";
import { askForKey, showShortcuts } from "./shell/dialogs.js";
import { Drawers } from "./shell/drawers.js";
import { listenForImports } from "./shell/import.js";
import { ModelChoice } from "./shell/models.js";
import { SettingsPanel } from "./shell/settings.js";
import { listenForShortcuts } from "./shell/shortcuts.js";
import { Sidebar } from "./shell/sidebar.js";
import { announce, toast } from "./shell/toast.js";

const TITLES = { dashboard: "Dashboard", compare: "Compare" }; // of the views beside the chat
const RETRY = 3000; // milliseconds until a server that did not answer is asked again

const mouse = matchMedia("(pointer: fine)");

fillIcons(document);
const library = new Library();
const drawers = new Drawers();
const dashboard = new Dashboard();
const models = new ModelChoice(library, showModel, learn);
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
const compare = new Compare(library, (conversation) => {
  library.adopt(conversation);
  location.hash = `#/chat/${conversation.id}`;
});
let contexts = new Map(); // how many tokens each model can see
let described = ""; // the model whose defaults the settings show
let retry = null;

/** Fetch the server's models and defaults; retry until it responds. */
async function learn() {
  clearTimeout(retry);
  try {
    models.offer(await listModels());
    compare.offer(models.names);
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
  described = "";
  learnDefaults();
  learnContexts();
  library.toolbox.learn();
}

/** Fetch the defaults of the chosen model, unless they are shown already. */
async function learnDefaults() {
  const { name } = models;
  if (!models.names.includes(name) || name === described) return;
  described = name;
  const found = await samplingDefaults(name).catch(() => ({}));
  if (name === described) settings.showDefaults(found);
}

async function learnContexts() {
  const status = await serverStatus().catch(() => null);
  if (status) contexts = new Map(status.models.map(({ name, context }) => [name, context]));
  showContext();
}

function showContext() {
  composer.showContext(contexts.get(models.name) ?? null);
}

/** Show what depends on the chosen model. */
function showModel() {
  showContext();
  learnDefaults();
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

/** Which view the URL names. */
function viewOf() {
  const [, name] = location.hash.split("/");
  return name in TITLES ? name : "chat";
}

/** Show the view of the current URL. */
function route() {
  const view = viewOf();
  for (const name of ["chat", ...Object.keys(TITLES)]) {
    find(`#${name}`).hidden = name !== view;
    const link = document.querySelector(`#${name}-link`);
    if (link) link.ariaCurrent = name === view ? "page" : null;
  }
  find("#app").classList.toggle("beside-chat", view !== "chat");
  dashboard.watch(view === "dashboard");
  if (view === "compare") compare.offer(models.names);
  if (view === "chat") library.open(location.hash.split("/")[2]);
  else if (!library.current) library.open(null);
  if (view !== "chat") drawers.toggle("settings", false);
  drawers.closeOverlays();
  showTitle();
}

function showTitle() {
  const own = TITLES[viewOf()];
  const name = own ?? (library.current.title || "New conversation");
  find("#title").textContent = name;
  document.title = own || library.current.title ? `${name} · Ingot` : "Ingot";
}

function escape() {
  if (drawers.closeOverlays() || drawers.closeAround(document.activeElement)) return;
  if (viewOf() === "compare") compare.stop();
  else library.generation(library.current)?.stop();
}

library.listed.listen(() => {
  showTitle();
  const { current } = library;
  if (viewOf() === "chat" && !current.empty && !location.hash.endsWith(current.id)) {
    history.replaceState(null, "", `#/chat/${current.id}`);
  }
});
library.shown.listen(showModel);
library.ended.listen((generation) => {
  if (generation.conversation === library.current) showContext();
  if (!contexts.get(models.name)) learnContexts(); // the model may have been loaded just now
  announce(generation.node.failure ? "The answer failed." : "The answer is complete.");
});
storageFull.listen(() =>
  toast("The browser's storage is full. Export and delete old conversations."),
);

/** A command that shows a view, or the chat again. */
const toggleView = (name) => () => {
  location.hash = viewOf() === name ? `#/chat/${library.current.id}` : `#/${name}`;
};

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
  composer: () => {
    if (viewOf() === "chat") composer.focus();
    if (viewOf() === "compare") compare.focus();
  },
  sidebar: () => drawers.toggle("sidebar"),
  settings: () => viewOf() === "chat" && drawers.toggle("settings"),
  compare: toggleView("compare"),
  dashboard: toggleView("dashboard"),
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
listenForImports(library, ({ id }) => {
  location.hash = `#/chat/${id}`;
});
find("#shortcuts").addEventListener("click", showShortcuts);
find("#retry-connection").addEventListener("click", learn);
addEventListener("hashchange", route);
route();
learn();
write();
