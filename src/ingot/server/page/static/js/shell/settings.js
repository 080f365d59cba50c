// The settings of the current conversation: system prompt, sampling, API key. An empty field means
// the server's default, which it shows as a placeholder.

import { apiKey } from "../api/client.js";
import { element, find } from "../dom.js";
import { NUMBERS, WHOLE } from "../model/sampling.js";
import { askForKey } from "./dialogs.js";

export class SettingsPanel {
  #library;
  #defaults = {};
  #system = find("#system");
  #stop = find("#stop");
  #rows = new Map();

  constructor(library, keyChanged) {
    this.#library = library;
    find("#sampling").append(
      ...NUMBERS.map((setting) => this.#row(setting, true)),
      ...WHOLE.map((setting) => this.#row(setting, false)),
    );
    this.#system.addEventListener("change", () =>
      library.changeSettings({ system: this.#system.value.trim() || null }),
    );
    this.#stop.addEventListener("change", () =>
      library.changeSettings({ stop: stopsFrom(this.#stop.value) }),
    );
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
    for (const [name, row] of this.#rows) this.#showRow(row, settings[name], this.#defaults[name]);
    find("#key-state").textContent = apiKey.get()
      ? "A key is kept in this browser."
      : "No key is stored in this browser.";
  }

  #row({ name, label, min, max = null, step = 1, hint }, slides) {
    const id = `setting-${name}`;
    const number = element("input", {
      type: "number",
      id,
      min,
      max,
      step: slides ? "any" : step,
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
    const known = typeof standard === "number" && standard >= 0;
    const rounded = known ? Number(standard.toFixed(3)) : null;
    row.classList.toggle("is-set", value !== undefined);
    number.placeholder = known ? String(rounded) : "auto";
    number.value = value ?? "";
    if (slider) slider.value = value ?? rounded ?? 0;
  }

  #reset() {
    const names = [...this.#rows.keys(), "stop"];
    this.#library.changeSettings(Object.fromEntries(names.map((name) => [name, null])));
    this.show();
  }
}

/** One stop sequence per line; \n and \t are escapes. */
function stopsFrom(text) {
  const stops = text.split("\n").filter((line) => line !== "");
  return stops.length
    ? stops.map((line) => line.replaceAll("\\n", "\n").replaceAll("\\t", "\t"))
    : null;
}

const escaped = (text) => text.replaceAll("\n", "\\n").replaceAll("\t", "\\t");
