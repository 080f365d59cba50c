// A short notice at the edge of the page, with at most one action.

import { element, find } from "../dom.js";

const SHOWN = 7000; // milliseconds

/** Show `text`; `action` is {label, run}. */
export function toast(text, action = null) {
  const notice = element("div", { class: "toast" }, element("span", {}, text));
  const close = () => notice.remove();
  if (action) {
    const run = () => {
      close();
      action.run();
    };
    notice.append(
      element("button", { type: "button", class: "link-button", click: run }, action.label),
    );
  }
  find("#toasts").append(notice);
  setTimeout(close, SHOWN);
}

/** Announce a text to screen readers. */
export function announce(text) {
  find("#announcements").textContent = text;
}
