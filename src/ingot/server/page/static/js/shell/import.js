// The button that imports conversations from files.

import { find } from "../dom.js";
import { conversationsFrom } from "../model/import.js";
import { toast } from "./toast.js";

export function listenForImports(library, opened) {
  const input = find("#import-file");
  find("#import").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => {
    const files = [...input.files];
    input.value = "";
    let count = 0;
    for (const file of files) {
      try {
        const found = conversationsFrom(await file.text());
        for (const conversation of found) library.adopt(conversation);
        count += found.length;
      } catch (error) {
        toast(`${file.name} cannot be imported: ${error.message}.`);
      }
    }
    if (!count) return;
    toast(count === 1 ? "One conversation imported." : `${count} conversations imported.`);
    opened(library.current);
  });
}
