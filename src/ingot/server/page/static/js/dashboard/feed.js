// The server's state over time: the last two minutes first, then once a second while the dashboard
// is visible. After a pause the part that was missed is fetched, too.

import { serverHistory, serverStatus } from "../api/client.js";
import { Signal } from "../signal.js";

const EVERY = 1000; // milliseconds

export class Feed {
  #timer = null;
  #watched = false;

  past = new Signal(); // [{at, models}]: counters by the name of the model
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
    if (wanted && this.#timer === null) this.#begin();
    if (!wanted) {
      clearTimeout(this.#timer);
      this.#timer = null;
    }
  }

  async #begin() {
    this.#timer = 0; // asked, no timer yet
    try {
      const samples = await serverHistory();
      const now = performance.now() / 1000;
      this.past.emit(samples.map(({ age, models }) => ({ at: now - age, models })));
    } catch {
      // the next request tells what is wrong
    }
    if (this.#timer === 0) this.#ask();
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
