// What stands where an answer will be until its first token: how much of the prompt is read, or
// when a busy server is asked again.

import { element, setText } from "../dom.js";

export class Waiting {
  #words = element("span");
  element = element(
    "p",
    { class: "waiting" },
    element("span", { class: "waiting-dots", "aria-hidden": "true" }),
    this.#words,
  );

  /** Show what a generation waits for; nothing if it is null. */
  show(generation) {
    this.element.hidden = !generation;
    if (!generation) return;
    const { progress, retryAt } = generation;
    // Prompts that are read at once show nothing of it.
    const reads = !retryAt && progress !== null && progress.processed < progress.total;
    this.element.classList.toggle("patient", !retryAt && !reads);
    this.element.classList.toggle("reading", reads);
    this.element.style.setProperty("--done", reads ? progress.processed / progress.total : 0);
    if (retryAt) {
      const seconds = Math.max(1, Math.ceil((retryAt - Date.now()) / 1000));
      setText(this.#words, `The server is busy. Retrying in ${seconds} s.`);
    } else if (reads) {
      const [done, all] = [progress.processed, progress.total].map((n) => n.toLocaleString("en"));
      setText(this.#words, `Reading the prompt: ${done} of ${all} tokens`);
    } else {
      setText(this.#words, "Reading the prompt. A model that is not loaded is loaded first.");
    }
  }
}
