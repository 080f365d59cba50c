// A message of the user. Editing it starts a branch; the old one is kept.

import { element } from "../dom.js";
import { iconButton } from "../icons.js";
import { copyButton } from "../shell/copy.js";
import { branchSwitch } from "./branches.js";
import { fitHeight } from "./composer.js";

export class Question {
  #library;

  constructor(library, node) {
    this.#library = library;
    this.node = node;
    this.element = element("article", {
      class: "message question",
      "aria-label": "Your message",
      "data-node": node.id,
    });
    this.#read();
  }

  #read() {
    const bar = element(
      "div",
      { class: "message-bar" },
      branchSwitch(this.#library, this.node),
      copyButton("Copy message", () => this.node.content),
      iconButton("pencil", "Edit (E)", () => this.edit()),
    );
    this.element.classList.remove("editing");
    this.element.replaceChildren(element("div", { class: "bubble" }, this.node.content), bar);
  }

  /** Turn the message into a field. */
  edit() {
    if (this.element.classList.contains("editing")) return;
    const field = element("textarea", {
      class: "edit-field",
      "aria-label": "Edit your message",
      rows: "1",
    });
    field.value = this.node.content;
    const cancel = () => this.#read();
    const send = () => {
      const content = field.value.trim();
      if (!content || this.#library.generation(this.#library.current)) return;
      this.#library.send(content, this.#library.current.parent(this.node));
    };
    field.addEventListener("input", () => fitHeight(field));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
        this.element.querySelector("[title^=Edit]").focus();
      }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    this.element.classList.add("editing");
    this.element.replaceChildren(
      field,
      element(
        "div",
        { class: "edit-actions" },
        element("button", { type: "button", class: "button", click: cancel }, "Cancel"),
        element(
          "button",
          { type: "button", class: "button primary", click: send },
          "Send as a new branch",
        ),
      ),
    );
    fitHeight(field);
    field.focus();
  }
}
