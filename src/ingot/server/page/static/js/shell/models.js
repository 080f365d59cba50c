// The model menu in the header: size, quantization and state of each model, loading, unloading and
// downloading. Each conversation keeps its choice. While the menu is open, or a download runs, it
// follows the server's events.

import { loadModel, modelEvents, unloadModel } from "../api/client.js";
import { element, find } from "../dom.js";
import { icon } from "../icons.js";
import { amount } from "../units.js";
import { ModelDownloads } from "./downloads.js";
import { toast } from "./toast.js";

const STATES = {
  loaded: "loaded",
  loading: "loading",
  sleeping: "sleeping",
  unloaded: "not loaded",
};

export class ModelChoice {
  #library;
  #changed;
  #button = find("#model");
  #menu = find("#models");
  #list = element("ul");
  #downloads;
  #models = []; // {id, state, progress, error, facts}
  #open = false;
  #watching = null; // an AbortController while events are followed

  /** `changed`: another model was chosen; `arrived`: one was downloaded. */
  constructor(library, changed, arrived) {
    this.#library = library;
    this.#changed = changed;
    this.#downloads = new ModelDownloads(arrived);
    this.#menu.append(this.#list, this.#downloads.view);
    this.#button.addEventListener("click", () => this.#menu.togglePopover());
    this.#menu.addEventListener("toggle", ({ newState }) => this.#toggled(newState === "open"));
    library.shown.listen(() => this.show());
  }

  get name() {
    return this.#library.current?.settings.model ?? "";
  }

  get names() {
    return this.#models.map(({ id }) => id);
  }

  /** Offer the models that the server lists. A conversation with an unknown model gets the first. */
  async offer(listed) {
    this.#models = listed.map((model) => ({
      id: model.id,
      state: model.status?.value ?? null,
      error: model.status?.error ?? null,
      progress: null,
      facts: factsOf(model),
    }));
    this.show();
    await this.#downloads.learn();
    this.show();
    this.#follow();
  }

  show() {
    const { current } = this.#library;
    this.#button.disabled = this.#models.length === 0 && !this.#downloads.allowed;
    if (!current || !this.#models.length) return;
    if (!this.names.includes(current.settings.model)) current.settings.model = this.names[0];
    this.#button.replaceChildren(element("span", {}, this.name), icon("chevron"));
    this.#button.setAttribute("aria-label", `Model: ${this.name}`);
    this.#button.title = `Model: ${this.name}`;
    if (this.#open) this.#fill();
  }

  #toggled(open) {
    this.#open = open;
    this.#button.setAttribute("aria-expanded", String(open));
    this.#follow();
    if (!open) return;
    this.#fill();
    this.#place();
    this.#menu.querySelector("[aria-current]")?.focus();
  }

  /** Follow the server's events as long as they are of interest. */
  #follow() {
    const wanted = this.#open || this.#downloads.running.size > 0;
    if (wanted === (this.#watching !== null)) return;
    this.#watching?.abort();
    this.#watching = wanted ? new AbortController() : null;
    if (wanted) this.#watch(this.#watching.signal);
  }

  async #watch(signal) {
    try {
      for await (const { model: id, event, data } of modelEvents(signal)) {
        if (event === "download") {
          this.#downloads.take(id, data);
          this.#follow();
          continue;
        }
        const model = this.#models.find((one) => one.id === id);
        if (event !== "model_status" || !model) continue;
        model.state = data.status;
        model.error = data.error ?? null;
        model.progress = data.progress?.value ?? null;
        this.#fill();
      }
    } catch {
      // an older server has no events: the list stays as it was when the page was opened
    }
  }

  #place() {
    const { bottom, right } = this.#button.getBoundingClientRect();
    this.#menu.style.top = `${bottom + 4}px`;
    const fits = innerWidth - this.#menu.offsetWidth - 8; // the left edge stays in view
    this.#menu.style.right = `${Math.min(fits, Math.max(8, innerWidth - right))}px`;
  }

  #fill() {
    const focused = document.activeElement?.dataset?.focus;
    this.#list.replaceChildren(...this.#models.map((model) => this.#row(model)));
    if (focused) this.#menu.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  #row({ id, state, progress, error, facts }) {
    const here = id === this.name;
    const words =
      state && (progress === null ? STATES[state] : `loading ${Math.round(100 * progress)}%`);
    const choose = () => {
      this.#library.changeSettings({ model: id });
      this.#menu.hidePopover();
      this.show();
      this.#changed();
    };
    return element(
      "li",
      { class: here ? "current" : null },
      element(
        "button",
        {
          type: "button",
          class: "model-row",
          "aria-current": here ? "true" : null,
          "data-focus": id,
          click: choose,
        },
        element("strong", {}, id),
        element(
          "span",
          { class: "model-facts" },
          ...(facts ? [`${facts} · `] : []),
          state ? element("span", { class: `model-state is-${state}` }, words) : null,
        ),
        error ? element("span", { class: "problem" }, error) : null,
      ),
      this.#action(id, state),
    );
  }

  #action(id, state) {
    if (state === null || state === "loading") return null;
    const loaded = state === "loaded";
    const run = () => (loaded ? unloadModel : loadModel)(id).catch(({ message }) => toast(message));
    return element(
      "button",
      {
        type: "button",
        class: "link-button",
        "data-focus": `act ${id}`,
        "aria-label": `${loaded ? "Unload" : "Load"} ${id}`,
        click: run,
      },
      loaded ? "Unload" : "Load",
    );
  }
}

function factsOf({ size, meta }) {
  const facts = [];
  if (meta?.n_params) facts.push(`${amount(meta.n_params, "B")} parameters`);
  if (meta?.quantization) facts.push(meta.quantization);
  if (size) facts.push(amount(size, "GB", "MB"));
  return facts.join(" · ");
}
