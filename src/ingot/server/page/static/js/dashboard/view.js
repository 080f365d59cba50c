// The dashboard: the current state of the server, model by model.

import { advice, heading } from "../api/failure.js";
import { element, find, setText } from "../dom.js";
import { Feed } from "./feed.js";
import { History } from "./history.js";
import { Plot } from "./plot.js";
import { requestRows } from "./requests.js";
import { brief, duration } from "./scale.js";

const TILES = ["Tokens/s", "Running", "Waiting", "Cache in use", "Prompt reused", "Uptime"];

export class Dashboard {
  #feed = new Feed();
  #histories = new Map(); // by model name
  #chosen = null;
  #newest = null;
  #now = 0;
  #tiles = TILES.map(() => element("strong", {}, "–"));
  #slots = element("div", { class: "slots", role: "img" });
  #models = element("div", { class: "model-tabs", role: "group", "aria-label": "Model" });
  #notice = element("div", { class: "notice", role: "alert", hidden: true });
  #rows = element("tbody");
  #plots = [
    new Plot({
      title: "Generated tokens per second",
      unit: "/s",
      least: 10,
      series: [{ name: "generated", label: "written", kind: "main" }],
    }),
    new Plot({
      title: "Requests",
      unit: "",
      least: 3,
      series: [
        { name: "running", label: "running", kind: "main" },
        { name: "waiting", label: "waiting", kind: "other" },
      ],
    }),
    new Plot({
      title: "KV cache",
      unit: "%",
      least: 10,
      series: [
        { name: "held", label: "in use", kind: "main" },
        { name: "kept", label: "kept for reuse", kind: "other" },
      ],
    }),
    new Plot({
      title: "Prompt tokens per second",
      unit: "/s",
      least: 10,
      series: [
        { name: "prompt", label: "read", kind: "main" },
        { name: "reused", label: "reused", kind: "other" },
      ],
    }),
    new Plot({
      title: "Requests per step",
      unit: "",
      least: 3,
      series: [{ name: "batch", label: "tokens per step", kind: "main" }],
    }),
  ];

  constructor() {
    const tiles = TILES.map((label, index) =>
      element("div", { class: "tile" }, element("span", {}, label), this.#tiles[index]),
    );
    const head = ["Request", "State", "Prompt", "Generated", "Time", "Speed"].map((label) =>
      element("th", { scope: "col" }, label),
    );
    find("#dashboard").append(
      element(
        "div",
        { class: "dashboard-inner" },
        this.#models,
        this.#notice,
        element("div", { class: "tiles" }, ...tiles),
        element("div", { class: "slots-place" }, "Slots", this.#slots),
        element(
          "div",
          { class: "plots" },
          ...this.#plots.map((plot) => plot.element),
          element(
            "section",
            { class: "plot requests" },
            element("h2", {}, "Current requests"),
            element(
              "div",
              { class: "table", tabindex: "0", role: "group", "aria-label": "Current requests" },
              element("table", {}, element("thead", {}, element("tr", {}, ...head)), this.#rows),
            ),
          ),
        ),
      ),
    );
    this.#feed.came.listen(({ at, status }) => this.#take(at, status));
    this.#feed.failed.listen((failure) => this.#fail(failure));
  }

  /** Whether it is visible. */
  watch(watched) {
    this.#feed.watch(watched);
  }

  #take(at, status) {
    this.#notice.hidden = true;
    this.#now = at;
    this.#newest = status;
    for (const model of status.models.filter(({ loaded }) => loaded)) {
      if (!this.#histories.has(model.name)) this.#histories.set(model.name, new History());
      this.#histories.get(model.name).take(at, model);
    }
    this.#draw();
  }

  #draw() {
    const { models, uptime_seconds: uptime } = this.#newest;
    const model =
      models.find(({ name }) => name === this.#chosen) ??
      models.find(({ loaded }) => loaded) ??
      models[0];
    this.#offer(models, model?.name);
    const samples = this.#histories.get(model?.name)?.samples ?? [];
    for (const plot of this.#plots) plot.show(samples, this.#now);
    const loaded = model?.loaded ? model : null;
    this.#fillTiles(loaded, samples, uptime);
    this.#fillSlots(loaded);
    this.#rows.replaceChildren(...requestRows(loaded));
  }

  #offer(models, chosen) {
    if (this.#models.childElementCount === models.length && this.#models.dataset.chosen === chosen)
      return;
    this.#models.dataset.chosen = chosen;
    this.#models.replaceChildren(
      ...models.map(({ name, loaded }) =>
        element(
          "button",
          {
            type: "button",
            "aria-pressed": String(name === chosen),
            click: () => {
              this.#chosen = name;
              this.#draw();
            },
          },
          loaded ? name : `${name} (not loaded)`,
        ),
      ),
    );
  }

  #fillTiles(model, samples, uptime) {
    const last = samples.at(-1);
    const read = model ? model.prompt_tokens + model.reused_tokens : 0;
    const values = [
      last ? brief(last.generated) : "–",
      model ? `${model.running} of ${model.slots}` : "–",
      model ? String(model.waiting) : "–",
      model?.cache_blocks ? `${brief((100 * model.cache_blocks_held) / model.cache_blocks)}%` : "–",
      read ? `${brief((100 * model.reused_tokens) / read)}%` : "–",
      duration(uptime),
    ];
    values.forEach((value, index) => setText(this.#tiles[index], value));
  }

  #fillSlots(model) {
    const count = model?.slots ?? 0;
    if (this.#slots.childElementCount !== count) {
      this.#slots.replaceChildren(...Array.from({ length: count }, () => element("span")));
    }
    [...this.#slots.children].forEach((slot, index) =>
      slot.classList.toggle("taken", index < model.running),
    );
    this.#slots.setAttribute(
      "aria-label",
      model ? `${model.running} of ${count} slots are taken` : "no model is loaded",
    );
  }

  #fail({ kind, message }) {
    this.#notice.hidden = false;
    const text =
      kind === "gone" ? "The numbers continue when it responds again." : `${advice(kind)} ${message}`;
    this.#notice.replaceChildren(
      element("div", {}, element("strong", {}, heading(kind)), element("p", {}, text)),
    );
  }
}
