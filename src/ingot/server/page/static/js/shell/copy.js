// Copy buttons, which show that copying worked.

import { icon, iconButton } from "../icons.js";
import { toast } from "./toast.js";

const SHOWN = 1600; // milliseconds that the mark stays

/** A button that copies what `text()` returns. */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      toast(
        "The browser allows copying only over HTTPS or on this machine.",
      );
      return;
    }
    button.replaceChildren(icon("check"));
    button.classList.add("done");
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.classList.remove("done");
    }, SHOWN);
  });
  return button;
}
