// A menu that opens beside a button: arrow keys choose, Escape closes it and returns the focus.

import { element } from "../dom.js";
import { icon } from "../icons.js";

/** Open a menu; entries are {icon, label, run, danger}. */
export function openMenu(button, entries) {
  const items = entries.map(({ icon: name, label, run, danger }) =>
    element(
      "button",
      {
        type: "button",
        role: "menuitem",
        class: danger ? "danger" : null,
        click: () => {
          close();
          run();
        },
      },
      icon(name),
      label,
    ),
  );
  const menu = element("div", { class: "menu", role: "menu", popover: "auto" }, ...items);
  const close = () => menu.hidePopover();
  menu.addEventListener("toggle", ({ newState }) => {
    if (newState === "closed") menu.remove();
  });
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Tab") close();
    if (!step) return;
    event.preventDefault();
    const next = items.indexOf(document.activeElement) + step;
    items[(next + items.length) % items.length].focus();
  });
  button.closest("nav, main, aside").append(menu); // part of the same landmark
  menu.showPopover();
  place(menu, button.getBoundingClientRect());
  items[0].focus();
}

function place(menu, button) {
  const { offsetWidth: width, offsetHeight: height } = menu;
  const below = button.bottom + 4 + height < innerHeight;
  menu.style.top = `${below ? button.bottom + 4 : button.top - 4 - height}px`;
  menu.style.left = `${Math.max(8, Math.min(button.left, innerWidth - width - 8))}px`;
}
