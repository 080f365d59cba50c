// Downloads in the model menu: a field for a name, and how far each download is. The server says
// whether there are any.

import { cancelDownload, downloadModel, modelDownloads } from "../api/client.js";
import { element, setText } from "../dom.js";
import { amount } from "../units.js";
import { toast } from "./toast.js";

const ENDED = ["done", "failed", "cancelled"];

export class ModelDownloads {
  #arrived;
  #rows = new Map(); // of each download: its nodes
  #list = element("ul");
  #name = element("input", {
    id: "download-name",
    type: "text",
    placeholder: "hf:OWNER/REPO",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  view = element(
    "section",
    { class: "downloads", hidden: true },
    this.#list,
    element(
      "form",
      { submit: (event) => this.#begin(event) },
      element("label", { for: "download-name" }, "Download a model of the hub or of Ollama (ollama:NAME)"),
      element(
        "div",
        { class: "download-field" },
        this.#name,
        element("button", { type: "submit", class: "button" }, "Download"),
      ),
    ),
  );
  running = new Set(); // names of downloads that have not ended

  /** `arrived` is called when a model has been downloaded. */
  constructor(arrived) {
    this.#arrived = arrived;
  }

  get allowed() {
    return !this.view.hidden;
  }

  /** Ask the server whether it downloads models, and which ones it is downloading now. */
  async learn() {
    const { allowed, data } = await modelDownloads().catch(() => ({ allowed: false, data: [] }));
    this.view.hidden = !allowed;
    for (const { model, data: state } of data) this.take(model, state);
  }

  /** Show the state of a download. */
  take(name, state) {
    if (ENDED.includes(state.status)) this.running.delete(name);
    else this.running.add(name);
    if (state.status === "cancelled" || state.status === "done") this.#remove(name);
    else this.#show(name, state);
    if (state.status !== "done") return;
    toast(`${state.model ?? name} is downloaded.`);
    this.#arrived();
  }

  async #begin(event) {
    event.preventDefault();
    const name = this.#name.value.trim();
    if (!name) return;
    try {
      await downloadModel(name);
      this.#name.value = "";
    } catch ({ message }) {
      toast(message);
    }
  }

  #remove(name) {
    this.#rows.get(name)?.row.remove();
    this.#rows.delete(name);
  }

  #show(name, { status, stage, done, total, error }) {
    if (!this.#rows.has(name)) this.#rows.set(name, this.#row(name));
    const { row, words, bar, problem, button } = this.#rows.get(name);
    if (!row.isConnected) this.#list.append(row);
    const failed = status === "failed";
    const share = total ? `: ${amount(done, "GB", "MB")} of ${amount(total, "GB", "MB")}` : "";
    setText(words, failed ? "failed" : status === "waiting" ? "waiting" : `${stage}${share}`);
    setText(problem, error ?? "");
    problem.hidden = !failed;
    bar.hidden = failed;
    if (total) bar.value = done / total;
    else bar.removeAttribute("value");
    setText(button, failed ? "Dismiss" : "Cancel");
    button.setAttribute("aria-label", `${failed ? "Dismiss" : "Cancel"} ${name}`);
  }

  #row(name) {
    const words = element("span", { class: "model-facts" });
    const bar = element("progress", { "aria-label": `Download of ${name}` });
    const problem = element("span", { class: "problem", hidden: true });
    const end = () => {
      if (!this.running.has(name)) this.#remove(name);
      else cancelDownload(name).catch(({ message }) => toast(message));
    };
    const button = element("button", { type: "button", class: "link-button", click: end });
    const about = element("div", { class: "download-about" });
    about.append(element("strong", {}, name), words, bar, problem);
    return { row: element("li", {}, about, button), words, bar, problem, button };
  }
}
