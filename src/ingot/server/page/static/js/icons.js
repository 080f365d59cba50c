// The page's icons: strokes on a field of 24 by 24, in the colour of the text around them.

import { element, svgElement } from "./dom.js";

const STROKES = {
  bars: "M4 7h16M4 12h16M4 17h16",
  branchBack: "M15 5l-7 7 7 7",
  branchOn: "M9 5l7 7-7 7",
  chart: "M4 20V4M4 20h16M8 15l4-5 3 3 5-7",
  check: "M5 12.5l4.5 4.5L19 7.5",
  chevron: "M6 9l6 6 6-6",
  clip: "M19 11.5l-7.2 7.2a4.2 4.2 0 01-6-6L13.6 5a2.8 2.8 0 014 4l-7.7 7.6a1.4 1.4 0 01-2-2l7-6.9",
  close: "M6 6l12 12M18 6L6 18",
  columns: "M4 5h7v14H4zM13 5h7v14h-7z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  dots: "M5.5 12h.01M12 12h.01M18.5 12h.01",
  down: "M12 5v14M6 13l6 6 6-6",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  file: "M7 3.5h7l4 4v13H7zM13.5 3.5v4.5H18",
  fold: "M9 6l6 6-6 6",
  forward: "M5 5l8 7-8 7zM18 5v14",
  half: "M12 3.5a8.5 8.5 0 100 17 8.5 8.5 0 000-17zM12 5.2a6.8 6.8 0 010 13.6z",
  keyboard: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
  moon: "M19 14.5A8 8 0 119.5 5a6.5 6.5 0 009.5 9.5z",
  pencil: "M5 19l1-4L16.5 4.5l3 3L9 18zM14.5 6.5l3 3",
  plus: "M12 5v14M5 12h14",
  redo: "M19 12a7 7 0 11-2.2-5.1M19 4v4.5h-4.5",
  search: "M11 5a6 6 0 100 12 6 6 0 000-12zM15.5 15.5L20 20",
  send: "M12 19V5M6 11l6-6 6 6",
  sliders: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  stop: "M7 7h10v10H7z",
  sun:
    "M12 8a4 4 0 100 8 4 4 0 000-8zM12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21" +
    "M5.6 5.6l1 1M17.4 17.4l1 1M5.6 18.4l1-1M17.4 6.6l1-1",
  tokens: "M4 6h6v5H4zM13 6h7v5h-7zM4 14h9v5H4zM16 14h4v5h-4z",
  tool: "M14.5 6.5a4 4 0 00-5.3 5.1L4 16.8 7.2 20l5.2-5.2a4 4 0 005.1-5.3l-2.4 2.4-2.6-.4-.4-2.6z",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
};
const FILLED = new Set(["stop", "half"]);

/** An icon that screen readers skip, because a label is beside it. */
export function icon(name) {
  const path = svgElement("path", { d: STROKES[name] });
  const shape = FILLED.has(name) ? "icon icon-filled" : "icon";
  return svgElement("svg", { viewBox: "0 0 24 24", class: shape, "aria-hidden": "true" }, path);
}

/** A button that shows only an icon; its name is a tooltip and a label for screen readers. The
 * tooltip also tells the key that does the same. */
export function iconButton(name, label, click, { key = null, ...attributes } = {}) {
  const title = key ? `${label} (${key})` : label;
  const all = { type: "button", class: "icon-button", "aria-label": label, title, click };
  return element("button", { ...all, "aria-keyshortcuts": key, ...attributes }, icon(name));
}

/** Draw the icons that the page's own markup asks for. */
export function fillIcons(root) {
  for (const place of root.querySelectorAll("[data-icon]")) place.prepend(icon(place.dataset.icon));
}
