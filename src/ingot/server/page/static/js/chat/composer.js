// The message field and its files. Enter sends, Shift+Enter starts a line (on a phone, Enter does).
// A message that is sent while an answer is generated waits until the answer is complete.

import { element, find, fitHeight, isSendKey, touch } from "../dom.js";
import { icon } from "../icons.js";
import { Attachments } from "./attach.js";
import { QueueView } from "./queue.js";

export class Composer {
  #field = find("#message");
  #button = find("#send");
  #halt = find("#halt");
  #attachments = new Attachments();
  #library;

  constructor(library, editLast) {
    this.#library = library;
    this.#field.addEventListener("input", () => this.#changed());
    this.#field.addEventListener("keydown", (event) => {
      if (isSendKey(event)) {
        event.preventDefault();
        this.send();
      } else if (event.key === "ArrowUp" && this.#field.value === "") {
        event.preventDefault();
        editLast();
      }
    });
    find("#composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.#button.append(icon("send"));
    this.#halt.addEventListener("click", () => this.#generation()?.stop());
    this.#attachments.changed.listen(() => this.show());
    new QueueView(library, ({ content, attachments }) => this.begin(content, attachments));
    library.listed.listen(() => this.show());
    this.show();
  }

  /** Send the message now, or after the answer that is being generated. */
  send() {
    if (this.#empty) return;
    const message = { content: this.#field.value.trim(), attachments: this.#attachments.take() };
    this.#field.value = "";
    this.#changed();
    if (this.#generation()) this.#library.enqueue(message);
    else this.#library.send(message);
  }

  /** Fill in a message, ready to edit. */
  begin(text, attachments = []) {
    this.#field.value = text;
    this.#attachments.restore(attachments);
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
    const label = writing ? "Send after this answer" : "Send";
    this.#halt.hidden = !writing;
    this.#button.setAttribute("aria-label", label);
    this.#button.title = touch.matches ? label : `${label} (Enter)`;
    this.#button.disabled = this.#empty;
  }

  get #empty() {
    return this.#field.value.trim() === "" && this.#attachments.empty;
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
