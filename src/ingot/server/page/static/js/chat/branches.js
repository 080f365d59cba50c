// The way between the branches of a message: how many there are, and a step to either side.

import { element } from "../dom.js";
import { iconButton } from "../icons.js";

/** The switch, or null where there is one branch alone. */
export function branchSwitch(library, node) {
  const { index, count } = library.current.place(node);
  if (count < 2) return null;
  const step = (by) => () => library.turn(node, by);
  const back = iconButton("branchBack", "Branch before ([)", step(-1), {
    "aria-disabled": String(index === 0),
  });
  const on = iconButton("branchOn", "Branch after (])", step(1), {
    "aria-disabled": String(index === count - 1),
  });
  const place = element(
    "span",
    { class: "branch-place", "aria-label": `Branch ${index + 1} of ${count}` },
    `${index + 1}/${count}`,
  );
  return element(
    "div",
    { class: "branches", role: "group", "aria-label": "Branches" },
    back,
    place,
    on,
  );
}
