// The settings of the current conversation: system prompt, answer format, sampling, API key. An empty field means
// the server's default, which it shows as a placeholder.

import { apiKey } from "../api/client.js";
import { element, find, setText } from "../dom.js";
import { icon } from "../icons.js";
import { GROUPS, NAMES } from "../model/sampling.js";
import { askForKey } from "./dialogs.js";
import { FormatField } from "./format.js";
import { Presets } from "./presets.js";
import { ToolSettings } from "./tools.js";

export class SettingsPanel {
  #library;
  #defaults = {};
  #system = find("#system");
  #stop = find("#stop");
  #order = find("#samplers");
  #rows = new Map();
  #format;
  #presets;
  #tools;

  constructor(library, keyChanged) {
    this.#library = library;
    this.#format = new FormatField(library);
    this.#presets = new Presets(library, () => this.show());
    this.#tools = new ToolSettings(library);
    const [main, ...more] = GROUPS;
    find("#sampling").append(...main.settings.map((setting) => this.#row(setting)));
    find("#more-sampling").prepend(...more.map((group) => this.#group(group)));
    this.#system.addEventListener("change", () =>
      library.changeSettings({ system: this.#system.value.trim() || null }),
    );
    this.#stop.addEventListener("change", () =>
      library.changeSettings({ stop: stopsFrom(this.#stop.value) }),
    );
    this.#order.addEventListener("change", () => {
      const names = this.#order.value.split(/[\s,;]+/).filter(Boolean);
      library.changeSettings({ samplers: names.length ? names : null });
      this.show();
    });
    find("#reset").addEventListener("click", () => this.#reset());
    find("#change-key").addEventListener("click", async () => {
      if (await askForKey()) keyChanged();
      this.show();
    });
    library.shown.listen(() => this.show());
  }

  /** The server's defaults, for empty fields. */
  showDefaults(defaults) {
    this.#defaults = defaults;
    this.show();
  }

  show() {
    const settings = this.#library.current?.settings ?? {};
    if (document.activeElement !== this.#system) this.#system.value = settings.system ?? "";
    if (document.activeElement !== this.#stop)
      this.#stop.value = (settings.stop ?? []).map(escaped).join("\n");
    if (document.activeElement !== this.#order)
      this.#order.value = (settings.samplers ?? []).join(", ");
    this.#order.placeholder = this.#defaults.samplers?.join(", ") ?? "The server's order";
    this.#format.show();
    this.#presets.show();
    this.#tools.show();
    for (const [name, row] of this.#rows) this.#showRow(row, settings[name], this.#defaults[name]);
    for (const group of document.querySelectorAll("#more-sampling details")) countSet(group);
    find("#key-state").textContent = apiKey.get()
      ? "A key is kept in this browser."
      : "No key is stored in this browser.";
  }

  #group({ title, settings }) {
    const summary = element(
      "summary",
      {},
      icon("fold"),
      title,
      element("span", { class: "set-count" }),
    );
    const rows = settings.map((setting) => this.#row(setting));
    return element("details", { class: "more" }, summary, ...rows);
  }

  #row({ name, label, min, max = null, step = null, hint }) {
    const slides = step !== null;
    const id = `setting-${name}`;
    const number = element("input", {
      type: "number",
      id,
      min,
      max,
      step: slides ? "any" : 1,
      inputmode: "decimal",
      "aria-describedby": `${id}-hint`,
    });
    const slider = slides
      ? element("input", { type: "range", min, max, step, "aria-label": label, tabindex: "-1" })
      : null;
    const row = { number, slider, min, max };
    number.addEventListener("change", () => this.#change(name, number.value));
    slider?.addEventListener("input", () => this.#change(name, slider.value));
    this.#rows.set(name, row);
    row.element = element(
      "div",
      { class: "setting" },
      element("label", { for: id }, label),
      number,
      slider,
      element("p", { class: "hint", id: `${id}-hint` }, hint),
    );
    return row.element;
  }

  #change(name, text) {
    const { min, max } = this.#rows.get(name);
    const value = text === "" ? null : Math.min(max ?? Infinity, Math.max(min, Number(text)));
    this.#library.changeSettings({ [name]: value });
    this.show();
  }

  #showRow({ number, slider, element: row }, value, standard) {
    const known = typeof standard === "number" && (standard >= 0 || number.min < 0);
    const rounded = known ? Number(standard.toFixed(3)) : null;
    row.classList.toggle("is-set", value !== undefined);
    number.placeholder = known ? String(rounded) : "auto";
    number.value = value ?? "";
    if (slider) slider.value = value ?? rounded ?? 0;
  }

  #reset() {
    this.#library.changeSettings(Object.fromEntries(NAMES.map((name) => [name, null])));
    this.show();
  }
}

/** Show how many settings of a folded group are set. */
function countSet(group) {
  const count = group.querySelectorAll(".is-set").length;
  setText(group.querySelector(".set-count"), count ? String(count) : "");
}

/** One stop sequence per line; \n and \t are escapes. */
function stopsFrom(text) {
  const stops = text.split("\n").filter((line) => line !== "");
  return stops.length
    ? stops.map((line) => line.replaceAll("\\n", "\n").replaceAll("\\t", "\t"))
    : null;
}

const escaped = (text) => text.replaceAll("\n", "\\n").replaceAll("\t", "\\t");
