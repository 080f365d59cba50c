// The message field. Enter sends, Shift+Enter starts a line (on a phone, Enter does). While an
// answer is generated, the button stops it.

import { element, find } from "../dom.js";
import { icon } from "../icons.js";

const touch = matchMedia("(pointer: coarse)");

/** Make a field as high as its text, up to what the style allows. */
export function fitHeight(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

export class Composer {
  #field = find("#message");
  #button = find("#send");
  #library;

  constructor(library, editLast) {
    this.#library = library;
    this.#field.addEventListener("input", () => this.#changed());
    this.#field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !touch.matches) {
        event.preventDefault();
        this.send();
      } else if (event.key === "ArrowUp" && this.#field.value === "") {
        event.preventDefault();
        editLast();
      }
    });
    find("#composer").addEventListener("submit", (event) => {
      event.preventDefault();
      const generation = this.#generation();
      if (generation) generation.stop();
      else this.send();
    });
    library.listed.listen(() => this.show());
    this.show();
  }

  send() {
    const content = this.#field.value.trim();
    if (!content || this.#generation()) return;
    this.#field.value = "";
    this.#changed();
    this.#library.send(content);
  }

  /** Fill in a text, ready to edit. */
  begin(text) {
    this.#field.value = text;
    this.#changed();
    this.focus();
  }

  focus() {
    this.#field.focus();
  }

  /** Show how much of the model's context the conversation uses. */
  showContext(context) {
    const usage = this.#library.current?.path().findLast((node) => node.usage?.prompt)?.usage;
    const place = find("#context");
    place.hidden = !usage || !context;
    if (place.hidden) return;
    const used = usage.prompt + usage.written;
    const share = Math.min(1, used / context);
    place.classList.toggle("nearly", share > 0.85);
    place.title = `The conversation uses ${used} of the model's ${context} context tokens.`;
    const bar = element("span", { class: "context-bar" }, element("span"));
    bar.firstChild.style.width = `${(share * 100).toFixed(1)}%`;
    place.replaceChildren(
      bar,
      `${used.toLocaleString("en")} of ${context.toLocaleString("en")} tokens`,
    );
  }

  show() {
    const writing = this.#generation() !== null;
    const label = writing ? "Stop (Esc)" : "Send (Enter)";
    this.#button.classList.toggle("stop", writing);
    this.#button.setAttribute("aria-label", label);
    this.#button.title = label;
    this.#button.replaceChildren(icon(writing ? "stop" : "send"));
    this.#button.disabled = !writing && this.#field.value.trim() === "";
  }

  #changed() {
    fitHeight(this.#field);
    this.show();
  }

  #generation() {
    const { current } = this.#library;
    return current ? this.#library.generation(current) : null;
  }
}
