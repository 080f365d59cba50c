// The model menu in the header. Each conversation keeps its choice.

import { element, find } from "../dom.js";

export class ModelChoice {
  #library;
  #select = find("#model");
  #names = [];

  constructor(library, changed) {
    this.#library = library;
    this.#select.addEventListener("change", () => {
      library.changeSettings({ model: this.#select.value });
      changed();
    });
    library.shown.listen(() => this.show());
  }

  get name() {
    return this.#select.value;
  }

  /** Offer these models. A conversation whose model is not among them gets the first. */
  offer(names) {
    this.#names = names;
    this.#select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    this.show();
  }

  show() {
    const { current } = this.#library;
    this.#select.disabled = this.#names.length < 2;
    if (!current || !this.#names.length) return;
    if (!this.#names.includes(current.settings.model)) current.settings.model = this.#names[0];
    this.#select.value = current.settings.model;
    this.#select.title = `Model: ${current.settings.model}`;
  }
}
