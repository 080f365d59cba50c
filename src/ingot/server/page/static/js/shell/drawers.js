// The two sides of the page: conversations on the left, settings on the right. If there
// is room they are beside the chat; on a small screen they cover it, one at a time.

import { find } from "../dom.js";

const wide = matchMedia("(min-width: 60rem)");

export class Drawers {
  #app = find("#app");
  #sides = {
    sidebar: {
      panel: find("#sidebar"),
      buttons: [...document.querySelectorAll("[data-toggle=sidebar]")],
    },
    settings: {
      panel: find("#settings"),
      buttons: [...document.querySelectorAll("[data-toggle=settings]")],
    },
  };

  constructor() {
    for (const [name, { buttons }] of Object.entries(this.#sides)) {
      for (const button of buttons) button.addEventListener("click", () => this.toggle(name));
    }
    find("#scrim").addEventListener("click", () => this.closeOverlays());
    wide.addEventListener("change", () => this.#start());
    this.#start();
  }

  toggle(name, open = !this.isOpen(name)) {
    const { panel, buttons } = this.#sides[name];
    if (open && !wide.matches) this.closeOverlays();
    this.#app.classList.toggle(`${name}-open`, open);
    panel.inert = !open;
    for (const button of buttons) button.setAttribute("aria-expanded", String(open));
    if (open) this.#enter(name, panel);
  }

  /** Focus the start of a side; on a small screen not a field, which opens a keyboard. */
  #enter(name, panel) {
    if (!wide.matches) panel.querySelector("button").focus({ preventScroll: true });
    else if (name === "settings") panel.querySelector("textarea").focus({ preventScroll: true });
  }

  isOpen(name) {
    return this.#app.classList.contains(`${name}-open`);
  }

  /** Close what covers the chat; returns whether something did. */
  closeOverlays() {
    if (wide.matches) return false;
    const open = Object.keys(this.#sides).filter((name) => this.isOpen(name));
    for (const name of open) this.toggle(name, false);
    return open.length > 0;
  }

  /** Close the settings if the focus is in them; returns whether it was. */
  closeAround(focused) {
    const { panel, buttons } = this.#sides.settings;
    if (!panel.contains(focused)) return false;
    this.toggle("settings", false);
    buttons[0].focus();
    return true;
  }

  #start() {
    this.toggle("sidebar", wide.matches);
    this.toggle("settings", false);
  }
}
