// What a new conversation shows: an introduction and a few suggestions.

import { element, svgElement } from "../dom.js";

const SUGGESTIONS = [
  ["Explain something", "Why is the sky blue? Explain it in three short paragraphs."],
  ["Write some code", "Write a Python function that finds the longest palindrome in a string."],
  ["Compare two things", "Compare tea and coffee in a table."],
  ["Think out loud", "Plan a quiet weekend by the sea. Make it a list."],
];

/** The elements; `suggest(text)` is called with the chosen suggestion. */
export function emptyState(suggest) {
  const cards = SUGGESTIONS.map(([title, text]) =>
    element(
      "button",
      { type: "button", class: "suggestion", click: () => suggest(text) },
      element("strong", {}, title),
      element("span", {}, text),
    ),
  );
  return element(
    "div",
    { class: "empty" },
    ingot(),
    element("h1", {}, "What would you like to know?"),
    element(
      "p",
      {},
      "The model runs on the server of this page. Conversations stay in this browser.",
    ),
    element("div", { class: "suggestions" }, ...cards),
  );
}

function ingot() {
  return svgElement(
    "svg",
    { viewBox: "0 0 64 40", class: "ingot", "aria-hidden": "true" },
    svgElement("path", { class: "ingot-top", d: "M16 4h32l6 12H10z" }),
    svgElement("path", { class: "ingot-front", d: "M10 16h44l6 20H4z" }),
  );
}
