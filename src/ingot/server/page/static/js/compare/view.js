// The comparison: one message goes to two models, or to one model with two settings, side by side.

import { element, find, fitHeight, isSendKey } from "../dom.js";
import { icon } from "../icons.js";
import { Pane } from "./pane.js";

export class Compare {
  #library;
  #panes;
  #field = element("textarea", {
    rows: "1",
    placeholder: "Ask both",
    "aria-label": "Message to both",
  });
  #send = element("button", { class: "send", type: "submit", "aria-label": "Send" }, icon("send"));
  #halt = element(
    "button",
    {
      class: "send halt",
      type: "button",
      "aria-label": "Stop",
      hidden: true,
      click: () => this.stop(),
    },
    icon("stop"),
  );

  /** `keep(conversation)` stores a side's conversation and shows it. */
  constructor(library, keep) {
    this.#library = library;
    this.#panes = ["Left", "Right"].map((name) => new Pane(name, keep));
    const again = element(
      "button",
      {
        type: "button",
        class: "icon-button",
        "aria-label": "Start over",
        title: "Start over",
        click: () => this.#begin(),
      },
      icon("redo"),
    );
    const form = element(
      "form",
      { class: "composer" },
      element("div", { class: "composer-row" }, again, this.#field, this.#halt, this.#send),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.#field.addEventListener("input", () => this.#show());
    this.#field.addEventListener("keydown", (event) => {
      if (!isSendKey(event)) return;
      event.preventDefault();
      this.#ask();
    });
    for (const pane of this.#panes) pane.changed.listen(() => this.#show());
    find("#compare").append(
      element("div", { class: "panes" }, ...this.#panes.map((pane) => pane.element)),
      element("div", { class: "composer-place" }, form),
    );
    this.#begin();
  }

  /** Offer the server's models and the present presets. */
  offer(names) {
    this.#panes.forEach((pane, index) => pane.offer(names, index));
  }

  focus() {
    this.#field.focus();
  }

  stop() {
    for (const pane of this.#panes) pane.stop();
  }

  #begin() {
    for (const pane of this.#panes) pane.begin(this.#library.startSettings());
  }

  get #writing() {
    return this.#panes.some((pane) => pane.writing);
  }

  #ask() {
    const content = this.#field.value.trim();
    if (!content || this.#writing) return;
    this.#field.value = "";
    for (const pane of this.#panes) pane.send(content);
    this.#show();
  }

  #show() {
    fitHeight(this.#field);
    this.#halt.hidden = !this.#writing;
    this.#send.disabled = this.#writing || this.#field.value.trim() === "";
  }
}
