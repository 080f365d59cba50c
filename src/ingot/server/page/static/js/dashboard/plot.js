// One plot: lines over the last two minutes, drawn as SVG. The legend shows the
// values under the pointer, or else the newest.

import { element, setText, svgElement } from "../dom.js";
import { WINDOW } from "./history.js";
import { brief, ticks } from "./scale.js";

const HEIGHT = 150;
const EDGE = { left: 40, right: 10, top: 10, bottom: 22 };

export class Plot {
  #series;
  #unit;
  #least;
  #samples = [];
  #now = 0;
  #width = 0;
  #hover = null; // seconds before now
  #svg = svgElement("svg", { role: "img", height: HEIGHT });
  #values = [];

  /** series: [{name, label, kind}], kind "main" or "other"; `least` is the smallest top. */
  constructor({ title, unit, series, least = 1 }) {
    this.#series = series;
    this.#unit = unit;
    this.#least = least;
    this.title = title;
    const legend = series.map(({ label, kind }) => {
      const value = element("span", { class: "plot-value" });
      this.#values.push(value);
      return element(
        "span",
        { class: "plot-key" },
        element("span", { class: `plot-swatch plot-${kind}` }),
        label,
        value,
      );
    });
    this.element = element(
      "figure",
      { class: "plot" },
      element(
        "figcaption",
        {},
        element("h2", {}, title),
        element("div", { class: "plot-legend" }, ...legend),
      ),
      this.#svg,
    );
    this.#svg.addEventListener("pointermove", (event) => this.#point(event));
    this.#svg.addEventListener("pointerleave", () => {
      this.#hover = null;
      this.#draw();
    });
    new ResizeObserver(([entry]) => {
      this.#width = Math.round(entry.contentRect.width);
      this.#draw();
    }).observe(this.element);
  }

  show(samples, now) {
    this.#samples = samples;
    this.#now = now;
    this.#draw();
  }

  #point(event) {
    const x = event.clientX - this.#svg.getBoundingClientRect().left;
    const share = (x - EDGE.left) / (this.#width - EDGE.left - EDGE.right);
    this.#hover = WINDOW * (1 - Math.min(1, Math.max(0, share)));
    this.#draw();
  }

  #draw() {
    if (!this.#width) return;
    const largest = Math.max(
      0,
      ...this.#samples.flatMap((sample) => this.#series.map(({ name }) => sample[name])),
    );
    const lines = ticks(largest, this.#least);
    const x = (at) =>
      EDGE.left + (1 - (this.#now - at) / WINDOW) * (this.#width - EDGE.left - EDGE.right);
    const y = (value) =>
      HEIGHT - EDGE.bottom - (value / lines.at(-1)) * (HEIGHT - EDGE.top - EDGE.bottom);
    const seen = this.#samples.filter(({ at }) => at >= this.#now - WINDOW);
    this.#svg.setAttribute("viewBox", `0 0 ${this.#width} ${HEIGHT}`);
    this.#svg.replaceChildren(
      ...lines.map((value) => this.#line(value, y(value))),
      ...this.#times(),
      ...this.#series.toReversed().flatMap((series) => curve(series, seen, x, y)),
    );
    this.#tell(seen, x);
  }

  #line(value, y) {
    return svgElement(
      "g",
      { class: "plot-grid" },
      svgElement("line", { x1: EDGE.left, x2: this.#width - EDGE.right, y1: y, y2: y }),
      svgElement(
        "text",
        { x: EDGE.left - 8, y: y + 4, "text-anchor": "end" },
        brief(value) + this.#unit,
      ),
    );
  }

  #times() {
    const label = (text, x, anchor) =>
      svgElement("text", { class: "plot-time", x, y: HEIGHT - 4, "text-anchor": anchor }, text);
    const middle = (EDGE.left + this.#width - EDGE.right) / 2;
    return [
      label("2 min ago", EDGE.left, "start"),
      label("1 min", middle, "middle"),
      label("now", this.#width - EDGE.right, "end"),
    ];
  }

  /** The values under the pointer, or the newest. */
  #tell(seen, x) {
    const wanted = this.#now - (this.#hover ?? 0);
    const near = seen.reduce(
      (best, one) => (!best || Math.abs(one.at - wanted) < Math.abs(best.at - wanted) ? one : best),
      null,
    );
    this.#series.forEach(({ name }, index) =>
      setText(this.#values[index], near ? brief(near[name]) + this.#unit : "–"),
    );
    const said = this.#series.map(
      ({ label, name }) => `${label} ${near ? brief(near[name]) + this.#unit : "unknown"}`,
    );
    this.#svg.setAttribute("aria-label", `${this.title}: ${said.join(", ")}`);
    if (near && this.#hover !== null) {
      const at = x(near.at);
      this.#svg.append(
        svgElement("line", {
          class: "plot-cursor",
          x1: at,
          x2: at,
          y1: EDGE.top,
          y2: HEIGHT - EDGE.bottom,
        }),
      );
    }
  }
}

function curve({ name, kind }, samples, x, y) {
  if (!samples.length) return [];
  const points = samples.map(
    (sample) => `${x(sample.at).toFixed(1)},${y(sample[name]).toFixed(1)}`,
  );
  const line = svgElement("polyline", {
    class: `plot-line plot-${kind}`,
    points: points.join(" "),
  });
  const foot = [
    `${x(samples.at(-1).at).toFixed(1)},${y(0)}`,
    `${x(samples[0].at).toFixed(1)},${y(0)}`,
  ];
  return [
    svgElement("polygon", {
      class: `plot-area plot-${kind}`,
      points: [...points, ...foot].join(" "),
    }),
    line,
  ];
}
