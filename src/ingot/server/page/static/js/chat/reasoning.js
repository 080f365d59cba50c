// The model's reasoning before its answer: folded, with a line that says how long it took.

import { element, setText } from "../dom.js";
import { icon } from "../icons.js";
import { MarkdownView } from "../markdown/view.js";

export class Reasoning {
  #label = element("span");
  #text = new MarkdownView();

  constructor() {
    const summary = element("summary", {}, icon("fold"), this.#label);
    this.element = element(
      "details",
      { class: "reasoning", hidden: true },
      summary,
      this.#text.element,
    );
    this.element.addEventListener("toggle", () => this.#text.show(this.shown ?? "", false));
  }

  show({ reasoning, content, times }, writing) {
    this.element.hidden = !reasoning;
    if (!reasoning) return;
    const thinking = writing && !content;
    this.element.classList.toggle("thinking", thinking);
    setText(
      this.#label,
      thinking ? "Thinking" : `Thought for ${(times?.thought ?? 0).toFixed(1)} s`,
    );
    this.shown = reasoning;
    if (this.element.open) this.#text.show(reasoning, thinking); // folded text is not laid out
  }
}
