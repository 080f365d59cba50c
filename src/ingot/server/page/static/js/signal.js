// An event with listeners.

export class Signal {
  #listeners = new Set();

  /** Call `listener` for every emit; the returned function removes it. */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  emit(value) {
    for (const listener of [...this.#listeners]) listener(value);
  }
}
