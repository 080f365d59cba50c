// The switch between the versions of a message: their number, previous and next.

import { element } from "../dom.js";
import { iconButton } from "../icons.js";

/** The switch, or null if there is only one version. */
export function branchSwitch(library, node) {
  const { index, count } = library.current.place(node);
  if (count < 2) return null;
  const step = (by) => () => library.turn(node, by);
  const back = iconButton("branchBack", "Previous version", step(-1), {
    key: "[",
    "aria-disabled": String(index === 0),
  });
  const on = iconButton("branchOn", "Next version", step(1), {
    key: "]",
    "aria-disabled": String(index === count - 1),
  });
  const place = element(
    "span",
    { class: "branch-place", role: "img", "aria-label": `Version ${index + 1} of ${count}` },
    `${index + 1}/${count}`,
  );
  return element(
    "div",
    { class: "branches", role: "group", "aria-label": "Versions" },
    back,
    place,
    on,
  );
}
