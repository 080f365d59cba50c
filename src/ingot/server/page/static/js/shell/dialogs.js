// The dialogs: the API key, a name, and the list of shortcuts.

import { apiKey } from "../api/client.js";
import { find } from "../dom.js";

/** Ask for the API key. Resolves to true if one was entered. */
export function askForKey() {
  const dialog = find("#key-dialog");
  const field = find("#key");
  if (dialog.open) return Promise.resolve(false);
  field.value = apiKey.get();
  dialog.returnValue = "";
  dialog.showModal();
  field.select();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        if (dialog.returnValue !== "keep") return resolve(false);
        apiKey.set(field.value.trim());
        resolve(true);
      },
      { once: true },
    );
  });
}

/** Ask for a name. Resolves to the name, or to null if there is none. */
export function askForName(title, name = "") {
  const dialog = find("#name-dialog");
  const field = find("#name");
  find("#name-title").textContent = title;
  field.value = name;
  dialog.returnValue = "";
  dialog.showModal();
  field.select();
  return new Promise((resolve) => {
    const close = () => resolve(dialog.returnValue === "keep" ? field.value.trim() || null : null);
    dialog.addEventListener("close", close, { once: true });
  });
}

export const showShortcuts = () => find("#shortcuts-dialog").showModal();
