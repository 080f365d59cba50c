// The dashboard: the current state of the server, model by model.

import { advice, heading } from "../api/failure.js";
import { element, find, setText } from "../dom.js";
import { Feed } from "./feed.js";
import { History } from "./history.js";
import { Plot } from "./plot.js";
import { replicaRows } from "./replicas.js";
import { brief, duration } from "./scale.js";
import { waterfallLegend, waterfallRows } from "./waterfall.js";

const TILES = [
  "Tokens",
  "Running",
  "Waiting",
  "Cache in use",
  "Prompt reused",
  "Accepted guesses",
  "Tokens per step",
  "Uptime",
];

export class Dashboard {
  #feed = new Feed();
  #histories = new Map(); // by model name
  #chosen = null;
  #newest = null;
  #now = 0;
  #tiles = TILES.map(() => element("strong", {}, "–"));
  #slots = element("div", { class: "slots", role: "img" });
  #free = element("span");
  #models = element("div", { class: "model-tabs", role: "group", "aria-label": "Model" });
  #notice = element("div", { class: "notice", role: "alert", hidden: true });
  #rows = element("ul", { class: "fall" });
  #replicas = element("ul", { class: "replicas" });
  #replicasPlace = element(
    "section",
    { class: "plot requests", hidden: true },
    element("div", { class: "requests-head" }, element("h2", {}, "Replicas")),
    this.#replicas,
  );
  #guesses = new Plot({
    title: "Accepted guesses",
    unit: "%",
    least: 100,
    series: [{ name: "accepted", label: "accepted", kind: "main" }],
  });
  #perStep = new Plot({
    title: "Tokens per step of a request",
    unit: "",
    least: 2,
    series: [{ name: "perStep", label: "tokens", kind: "main" }],
  });
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
      series: [{ name: "batch", label: "requests", kind: "main" }],
    }),
    this.#guesses,
    this.#perStep,
  ];

  constructor() {
    const tiles = TILES.map((label, index) =>
      element("div", { class: "tile" }, element("span", {}, label), this.#tiles[index]),
    );
    find("#dashboard").append(
      element(
        "div",
        { class: "dashboard-inner" },
        this.#models,
        this.#notice,
        element("div", { class: "tiles" }, ...tiles),
        element("div", { class: "slots-place" }, "Slots", this.#free, this.#slots),
        this.#replicasPlace,
        element(
          "section",
          { class: "plot requests" },
          element(
            "div",
            { class: "requests-head" },
            element("h2", {}, "Latest requests"),
            element("div", { class: "plot-legend" }, ...waterfallLegend()),
          ),
          this.#rows,
        ),
        element("div", { class: "plots" }, ...this.#plots.map((plot) => plot.element)),
      ),
    );
    this.#feed.past.listen((samples) => this.#remember(samples));
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
      this.#history(model.name).take(at, model);
    }
    this.#draw();
  }

  /** Begin with what the server remembers. */
  #remember(samples) {
    this.#histories.clear();
    for (const { at, models } of samples) {
      for (const [name, counts] of Object.entries(models)) this.#history(name).take(at, counts);
    }
  }

  #history(name) {
    if (!this.#histories.has(name)) this.#histories.set(name, new History());
    return this.#histories.get(name);
  }

  #draw() {
    const { models, ended = [], uptime_seconds: uptime } = this.#newest;
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
    this.#rows.replaceChildren(...waterfallRows(loaded, ended));
    this.#replicas.replaceChildren(...replicaRows(loaded));
    this.#replicasPlace.hidden = !loaded?.replicas;
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
      last ? `${brief(last.generated)}/s` : "–",
      model ? `${model.running} of ${model.slots}` : "–",
      model ? String(model.waiting) : "–",
      model?.cache_blocks ? `${brief((100 * model.cache_blocks_held) / model.cache_blocks)}%` : "–",
      read ? `${brief((100 * model.reused_tokens) / read)}%` : "–",
      model?.guessed_tokens
        ? `${brief((100 * model.accepted_tokens) / model.guessed_tokens)}%`
        : null,
      model?.guessed_tokens && model.text_steps
        ? (model.generated_tokens / model.text_steps).toFixed(2)
        : null,
      duration(uptime),
    ];
    values.forEach((value, index) => {
      this.#tiles[index].parentElement.hidden = value === null;
      setText(this.#tiles[index], value ?? "");
    });
    for (const plot of [this.#guesses, this.#perStep]) {
      plot.element.hidden = !model?.guessed_tokens; // speculation is off
    }
  }

  /** One mark per slot; a line of text while all are free. */
  #fillSlots(model) {
    const count = model?.slots ?? 0;
    const running = model?.running ?? 0;
    this.#slots.hidden = running === 0;
    this.#free.hidden = running > 0;
    setText(this.#free, model ? `${count} free` : "no model is loaded");
    if (this.#slots.childElementCount !== count) {
      this.#slots.replaceChildren(...Array.from({ length: count }, () => element("span")));
    }
    [...this.#slots.children].forEach((slot, index) =>
      slot.classList.toggle("taken", index < running),
    );
    this.#slots.setAttribute("aria-label", `${running} of ${count} slots are taken`);
  }

  #fail({ kind, message }) {
    this.#notice.hidden = false;
    const text =
      kind === "gone"
        ? "The numbers continue when it responds again."
        : `${advice(kind)} ${message}`;
    this.#notice.replaceChildren(
      element("div", {}, element("strong", {}, heading(kind)), element("p", {}, text)),
    );
  }
}
