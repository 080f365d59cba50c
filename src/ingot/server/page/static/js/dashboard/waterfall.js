// The requests of a model, each as a bar of its parts: in the queue, reading the prompt until the
// first token, writing. Current requests come first, then those that have ended, newest first.

import { element } from "../dom.js";
import { brief, duration } from "./scale.js";

const PARTS = [
  { name: "queue", label: "in the queue" },
  { name: "prompt", label: "reading the prompt" },
  { name: "generation", label: "writing" },
];

/** The legend of the bars. */
export function waterfallLegend() {
  return PARTS.map(({ name, label }) =>
    element(
      "span",
      { class: "plot-key" },
      element("span", { class: `plot-swatch part-${name}` }),
      label,
    ),
  );
}

/** The rows for a model: its current requests, and those of `ended` that were its own. */
export function waterfallRows(model, ended) {
  const current = (model?.requests ?? []).map((request) => ({ ...request, ...openParts(request) }));
  const past = ended
    .filter((request) => request.model === model?.name)
    .map((request) => ({ ...request, state: "ended" }))
    .toReversed();
  const all = [...current, ...past];
  if (!all.length) {
    const text = model ? "No requests yet." : "The model is loaded at its next request.";
    return [element("li", { class: "nothing" }, text)];
  }
  const longest = Math.max(...all.map(total), 1e-3);
  return all.map((request) => row(request, longest));
}

/** Of a request that is not done: what it does now has lasted for the rest of the time. */
function openParts({ seconds, queue_seconds: queue, prompt_seconds: prompt, generated_tokens }) {
  const rest = Math.max(0, seconds - queue - prompt);
  if (generated_tokens) return { generation_seconds: rest };
  return prompt ? {} : { prompt_seconds: rest };
}

const partOf = (request, name) => request[`${name}_seconds`] ?? 0;
const total = (request) => PARTS.reduce((sum, { name }) => sum + partOf(request, name), 0);

function row(request, longest) {
  const { id, state, age, prompt_tokens: prompt, generated_tokens: written } = request;
  const bar = element("span", { class: "fall-bar", "aria-hidden": "true" });
  for (const { name } of PARTS) {
    const part = element("span", { class: `part-${name}` });
    part.style.width = `${(100 * partOf(request, name)) / longest}%`;
    bar.append(part);
  }
  const when = state === "ended" ? `${duration(age)} ago` : state;
  return element(
    "li",
    { title: id },
    element("span", { class: `state state-${state}` }, when),
    bar,
    element("span", { class: "fall-facts" }, facts(request, prompt, written)),
  );
}

function facts(request, prompt, written) {
  const writing = partOf(request, "generation");
  const said = [`${total(request).toFixed(2)} s`, `${brief(prompt)} in, ${brief(written)} out`];
  if (written) {
    const first = partOf(request, "queue") + partOf(request, "prompt");
    said.push(`first after ${first.toFixed(2)} s`);
  }
  if (written > 1 && writing > 0) said.push(`${brief((written - 1) / writing)}/s`);
  return said.join(" · ");
}
