// A block of code: its language, a button that copies it, and its text in colours. It grows in
// place, so that the button keeps its focus while the model generates.

import { element, setText } from "../dom.js";
import { copyButton } from "../shell/copy.js";
import { highlighted } from "./highlight.js";

export class CodeBlock {
  #language = element("span", { class: "code-language" });
  #code = element("code");
  #text = null;

  constructor(block) {
    const copy = copyButton("Copy code", () => this.#text);
    const pre = element("pre", { tabindex: "0", role: "group", "aria-label": "Code" }, this.#code);
    const bar = element("div", { class: "code-bar" }, this.#language, copy);
    this.element = element("div", { class: "code-block" }, bar, pre);
    this.show(block);
  }

  show({ language, text }) {
    setText(this.#language, language || "text");
    if (text === this.#text) return;
    this.#text = text;
    this.#code.replaceChildren(...highlighted(text, language));
  }
}
