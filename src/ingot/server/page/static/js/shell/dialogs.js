// The two dialogs: the API key, and the list of shortcuts.

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

export const showShortcuts = () => find("#shortcuts-dialog").showModal();
