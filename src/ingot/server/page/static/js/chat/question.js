// A message of the user. Editing it starts a branch; the old one is kept.

import { element } from "../dom.js";
import { iconButton } from "../icons.js";
import { fullText } from "../model/attachments.js";
import { copyButton } from "../shell/copy.js";
import { attachmentList } from "./attach.js";
import { branchSwitch } from "./branches.js";
import { editInPlace } from "./edit.js";

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
      copyButton("Copy message", () => fullText(this.node)),
      iconButton("pencil", "Edit", () => this.edit(), { key: "E" }),
    );
    this.element.classList.remove("editing");
    const { content, attachments } = this.node;
    const bubble = content ? element("div", { class: "bubble" }, content) : "";
    this.element.replaceChildren(attachmentList(attachments) ?? "", bubble, bar);
  }

  /** Turn the message into a field. What is sent is another version; its files stay. */
  edit() {
    if (this.element.classList.contains("editing")) return;
    const { content, attachments = [] } = this.node;
    const send = (text) => {
      if (this.#library.generation(this.#library.current)) return;
      this.#library.send({ content: text, attachments }, this.#library.current.parent(this.node));
    };
    editInPlace(this.element, {
      text: content,
      label: "Edit your message",
      actions: [["Send", send]],
      canBeEmpty: attachments.length > 0,
      entersAtOnce: true,
      cancel: () => {
        this.#read();
        this.element.querySelector("[aria-label=Edit]").focus();
      },
    });
  }
}
