// The messages that wait for the current answer, above the message field.

import { element, find } from "../dom.js";
import { iconButton } from "../icons.js";

export class QueueView {
  #library;
  #edit;
  #place = find("#queue");

  /** `edit(message)` puts a message back into the field. */
  constructor(library, edit) {
    this.#library = library;
    this.#edit = edit;
    library.queues.changed.listen(() => this.show());
    library.listed.listen(() => this.show());
  }

  show() {
    const { current, queues } = this.#library;
    if (!current) return;
    const waiting = queues.of(current.id);
    const idle = this.#library.generation(current) === null;
    this.#place.hidden = waiting.length === 0;
    this.#place.replaceChildren(
      ...waiting.map((message, index) => this.#item(message, idle && index === 0)),
    );
  }

  #item(message, sendable) {
    const { current, queues } = this.#library;
    const remove = () => queues.remove(current.id, message);
    const edit = () => {
      remove();
      this.#edit(message);
    };
    const send = element(
      "button",
      { type: "button", class: "link-button", click: () => this.#library.sendQueued() },
      "Send",
    );
    const text = message.content || message.attachments.map(({ name }) => name).join(", ");
    return element(
      "li",
      {},
      element("span", { class: "queue-text" }, text),
      sendable ? send : element("span", { class: "queue-state" }, "waiting"),
      iconButton("pencil", "Edit the waiting message", edit),
      iconButton("close", "Remove the waiting message", remove),
    );
  }
}
