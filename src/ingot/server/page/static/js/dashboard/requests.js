// The current requests of a model, as rows of a table.

import { element } from "../dom.js";
import { brief } from "./scale.js";

const COLUMNS = 6;
const ID_LENGTH = 14;

const short = (id) => (id.length > ID_LENGTH ? `${id.slice(0, ID_LENGTH - 1)}…` : id);

export function requestRows(model) {
  const requests = model?.requests ?? [];
  if (!requests.length) {
    const text = model
      ? "No requests right now."
      : "The model is loaded at its next request.";
    return [element("tr", {}, element("td", { colspan: COLUMNS, class: "nothing" }, text))];
  }
  return requests.map((request) => {
    const { id, state, prompt_tokens: prompt, generated_tokens: written, seconds } = request;
    const speed = written && seconds > 0 ? `${brief(written / seconds)}/s` : "–";
    const cells = [String(prompt), String(written), `${seconds.toFixed(1)} s`, speed];
    return element(
      "tr",
      {},
      element("td", {}, element("code", { title: id }, short(id))),
      element("td", {}, element("span", { class: `state state-${state}` }, state)),
      ...cells.map((text) => element("td", { class: "number" }, text)),
    );
  });
}
