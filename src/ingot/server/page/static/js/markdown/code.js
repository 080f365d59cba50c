// A block of code: its language, a button that copies it, and its text in colours. It grows in
// place, so that the button keeps its focus while the model generates. A complete Mermaid diagram is
// drawn, with a button that shows its source.

import { diagramOf } from "../diagrams/mermaid.js";
import { element, setText } from "../dom.js";
import { copyButton } from "../shell/copy.js";
import { highlighted } from "./highlight.js";

export class CodeBlock {
  #language = element("span", { class: "code-language" });
  #code = element("code");
  #pre = element("pre", { tabindex: "0", role: "group", "aria-label": "Code" }, this.#code);
  #figure = null; // the picture, once it is drawn
  #switch = null;
  #copy = copyButton("Copy code", () => this.#text);
  #text = null;
  #drawn = null; // the text whose picture is shown

  constructor(block) {
    const bar = element("div", { class: "code-bar" }, this.#language, this.#copy);
    this.element = element("div", { class: "code-block" }, bar, this.#pre);
    this.show(block);
  }

  show({ language, text, closed = false }) {
    setText(this.#language, language || "text");
    if (closed && language === "mermaid" && text !== this.#drawn) this.#draw(text);
    if (text === this.#text) return;
    this.#text = text;
    this.#code.replaceChildren(...highlighted(text, language));
  }

  #draw(text) {
    this.#drawn = text;
    const picture = diagramOf(text);
    if (!picture) return;
    if (!this.#figure) this.#addFigure();
    this.#figure.replaceChildren(picture);
    this.#turn(true);
  }

  #addFigure() {
    const attributes = { class: "figure", tabindex: "0", role: "group", "aria-label": "Diagram" };
    this.#figure = element("div", attributes);
    const click = () => this.#turn(this.#figure.hidden);
    this.#switch = element("button", { type: "button", class: "link-button", click });
    this.#copy.before(this.#switch);
    this.#pre.before(this.#figure);
  }

  /** Show the picture, or the source. */
  #turn(drawn) {
    this.#figure.hidden = !drawn;
    this.#pre.hidden = drawn;
    setText(this.#switch, drawn ? "Source" : "Diagram");
  }
}
