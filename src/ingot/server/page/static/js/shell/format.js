// The form of the answer: any text, JSON, a JSON schema, or a grammar.

import { element, find, setText } from "../dom.js";
import { FORMATS, formatProblem } from "../model/sampling.js";

export class FormatField {
  #library;
  #kind = find("#format-kind");
  #text = find("#format-text");
  #problem = find("#format-problem");

  constructor(library) {
    this.#library = library;
    this.#kind.append(
      ...FORMATS.map(({ kind, label }) => element("option", { value: kind }, label)),
    );
    this.#kind.addEventListener("change", () => {
      this.#change();
      if (!this.#text.hidden) this.#text.focus();
    });
    this.#text.addEventListener("input", () => this.#tell());
    this.#text.addEventListener("change", () => this.#change());
  }

  show() {
    const { kind = "text", text = "" } = this.#library.current?.settings.format ?? {};
    const format = FORMATS.find((one) => one.kind === kind);
    this.#kind.value = kind;
    this.#text.hidden = format.example === undefined;
    this.#text.placeholder = format.example ?? "";
    this.#text.setAttribute("aria-label", format.label);
    if (document.activeElement !== this.#text) this.#text.value = text;
    this.#tell();
  }

  #change() {
    const kind = this.#kind.value;
    const format = kind === "text" ? null : { kind, text: this.#text.value };
    this.#library.changeSettings({ format });
    this.show();
  }

  #tell() {
    const problem = formatProblem({ kind: this.#kind.value, text: this.#text.value });
    const shown = this.#text.hidden || !this.#text.value ? null : problem;
    this.#problem.hidden = shown === null;
    setText(this.#problem, shown ?? "");
  }
}
