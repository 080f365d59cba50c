// The tools of a conversation, in the settings: a field for the user's own, and the MCP servers.

import { element, find, setText } from "../dom.js";
import { toolsFrom } from "../model/toolbox.js";

export class ToolSettings {
  #library;
  #field = find("#tools");
  #problem = find("#tools-problem");
  #servers = find("#mcp");

  constructor(library) {
    this.#library = library;
    this.#field.addEventListener("input", () => this.#tell());
    this.#field.addEventListener("change", () =>
      library.changeSettings({ tools: this.#field.value.trim() || null }),
    );
    library.toolbox.changed.listen(() => this.show());
  }

  show() {
    const { settings = {} } = this.#library.current ?? {};
    if (document.activeElement !== this.#field) this.#field.value = settings.tools ?? "";
    this.#tell();
    const { servers } = this.#library.toolbox;
    this.#servers.hidden = servers.length === 0;
    this.#servers.replaceChildren(
      element("legend", {}, "MCP servers"),
      ...servers.map((server) => this.#server(server, settings.mcp ?? [])),
    );
  }

  #server({ name, state, error, tools }, used) {
    const box = element("input", { type: "checkbox", value: name });
    box.checked = used.includes(name);
    box.addEventListener("change", () => {
      const now = box.checked ? [...used, name] : used.filter((one) => one !== name);
      this.#library.changeSettings({ mcp: now.length ? now : null });
      this.show();
      this.#servers.querySelector(`[value="${CSS.escape(name)}"]`)?.focus();
    });
    const names = tools.map((tool) => tool.name).join(", ");
    return element(
      "label",
      { class: "mcp-server" },
      box,
      element(
        "span",
        {},
        name,
        element("span", { class: error ? "hint problem" : "hint" }, error ?? (names || state)),
      ),
    );
  }

  #tell() {
    let said = "";
    try {
      toolsFrom(this.#field.value);
    } catch (failure) {
      said = failure.message;
    }
    this.#problem.hidden = !said;
    setText(this.#problem, said);
  }
}
