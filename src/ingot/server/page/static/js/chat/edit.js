// Editing in place: a message's element becomes a field with buttons. The text goes to the button's
// function; Escape and Cancel leave everything as it was.

import { element, fitHeight } from "../dom.js";

/** actions: [label, run(text)], the main one last. With `entersAtOnce`, Enter runs the main one. */
export function editInPlace(
  place,
  { text, label, actions, cancel, canBeEmpty = false, entersAtOnce = false },
) {
  const field = element("textarea", { class: "edit-field", "aria-label": label, rows: "1" });
  field.value = text;
  const run = (action) => () => {
    const written = field.value.trim();
    if (written || canBeEmpty) action(written);
  };
  const [, main] = actions.at(-1);
  field.addEventListener("input", () => fitHeight(field));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    }
    const enters = entersAtOnce ? !event.shiftKey : event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && enters && !event.isComposing) {
      event.preventDefault();
      run(main)();
    }
  });
  const button = (name, click, kind) =>
    element("button", { type: "button", class: kind, click }, name);
  const others = actions.slice(0, -1).map(([name, action]) => button(name, run(action), "button"));
  place.classList.add("editing");
  place.replaceChildren(
    field,
    element(
      "div",
      { class: "edit-actions" },
      button("Cancel", cancel, "button"),
      ...others,
      button(actions.at(-1)[0], run(main), "button primary"),
    ),
  );
  fitHeight(field);
  field.focus();
}
