// The keyboard. Single letters work while nothing is being typed; the list that readers see is in
// the page's markup.

const editable = (node) => node.matches?.("input, textarea, select, [contenteditable]") ?? false;

/** Run `commands`, functions by the names that are used below, when their keys are pressed. */
export function listenForShortcuts(commands) {
  const plain = {
    "/": commands.composer,
    "?": commands.help,
    "[": commands.back,
    "]": commands.on,
    b: commands.sidebar,
    c: commands.compare,
    d: commands.dashboard,
    e: commands.edit,
    n: commands.new,
    r: commands.again,
    s: commands.settings,
    t: commands.tokens,
  };
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    if (document.querySelector("dialog[open], [popover]:popover-open")) return;
    const control = event.ctrlKey || event.metaKey;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key === "Escape") run(commands.escape, event);
    else if (control && key === "k") run(commands.search, event);
    else if (control && event.shiftKey && key === "o") run(commands.new, event);
    else if (!control && !event.altKey && !editable(event.target) && plain[key])
      run(plain[key], event);
  });
}

function run(command, event) {
  event.preventDefault();
  command();
}
