// The presets of the settings panel: choose, save, rename, delete.

import { element, find } from "../dom.js";
import { iconButton } from "../icons.js";
import {
  presetNames,
  presetOf,
  presetSettings,
  removePreset,
  renamePreset,
  savePreset,
} from "../model/presets.js";
import { askForName } from "./dialogs.js";
import { toast } from "./toast.js";

export class Presets {
  #library;
  #changed;
  #select = element("select", { id: "preset", "aria-label": "Preset" });
  #rename = iconButton("pencil", "Rename preset", () => this.#renameChosen());
  #remove = iconButton("trash", "Delete preset", () => this.#removeChosen());

  /** `changed` is called after a preset has changed the settings. */
  constructor(library, changed) {
    this.#library = library;
    this.#changed = changed;
    const save = element(
      "button",
      { type: "button", class: "button", id: "save-preset", click: () => this.#save() },
      "Save",
    );
    find("#presets").append(this.#select, save, this.#rename, this.#remove);
    this.#select.addEventListener("change", () => this.#choose(this.#select.value));
  }

  show() {
    const names = presetNames();
    const chosen = presetOf(this.#library.current?.settings ?? {});
    const options = names.map((name) => element("option", { value: name }, name));
    const none = names.length ? "No preset" : "No presets yet";
    this.#select.replaceChildren(element("option", { value: "" }, none), ...options);
    this.#select.value = chosen ?? "";
    this.#rename.hidden = this.#remove.hidden = chosen === null;
  }

  #choose(name) {
    if (name) this.#library.changeSettings(presetSettings(name));
    this.#changed();
  }

  async #save() {
    const name = await askForName("Save preset", this.#select.value);
    if (!name) return;
    savePreset(name, this.#library.current.settings);
    this.show();
  }

  async #renameChosen() {
    const name = this.#select.value;
    const to = await askForName("Rename preset", name);
    if (!to || to === name) return;
    if (presetNames().includes(to)) return toast(`There is a preset ${to} already.`);
    renamePreset(name, to);
    this.show();
  }

  #removeChosen() {
    const name = this.#select.value;
    const kept = this.#library.current.settings;
    removePreset(name);
    this.show();
    toast("Preset deleted.", {
      label: "Undo",
      run: () => {
        savePreset(name, kept);
        this.show();
      },
    });
  }
}
