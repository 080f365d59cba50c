// Messages that wait until an answer is complete, in order, for each conversation.
// They are not stored: a page that is closed forgets them.

import { Signal } from "../signal.js";

export class Queues {
  #waiting = new Map(); // by conversation id

  changed = new Signal();

  of(id) {
    return this.#waiting.get(id) ?? [];
  }

  add(id, message) {
    this.#set(id, [...this.of(id), message]);
  }

  remove(id, message) {
    this.#set(
      id,
      this.of(id).filter((one) => one !== message),
    );
  }

  /** Remove and return the first message, or null. */
  take(id) {
    const [first = null, ...rest] = this.of(id);
    this.#set(id, rest);
    return first;
  }

  clear(id) {
    this.#set(id, []);
  }

  #set(id, messages) {
    if (messages.length) this.#waiting.set(id, messages);
    else this.#waiting.delete(id);
    this.changed.emit();
  }
}
