// The server's state over time: fetched once a second while the dashboard is visible.

import { serverStatus } from "../api/client.js";
import { Signal } from "../signal.js";

const EVERY = 1000; // milliseconds

export class Feed {
  #timer = null;
  #watched = false;

  came = new Signal(); // {at, status}
  failed = new Signal(); // a Failure

  constructor() {
    document.addEventListener("visibilitychange", () => this.#decide());
  }

  watch(watched) {
    this.#watched = watched;
    this.#decide();
  }

  #decide() {
    const wanted = this.#watched && !document.hidden;
    if (wanted && this.#timer === null) this.#ask();
    if (!wanted) {
      clearTimeout(this.#timer);
      this.#timer = null;
    }
  }

  async #ask() {
    const began = performance.now();
    this.#timer = 0; // asked, no timer yet
    try {
      const status = await serverStatus();
      this.came.emit({ at: (began + performance.now()) / 2000, status });
    } catch (failure) {
      this.failed.emit(failure);
    }
    if (this.#timer === 0) this.#timer = setTimeout(() => this.#ask(), EVERY);
  }
}
