// The files that will go with the next message: a button, dropping and pasting add them.

import { element, find } from "../dom.js";
import { icon, iconButton } from "../icons.js";
import { readAttachment } from "../model/attachments.js";
import { Signal } from "../signal.js";
import { toast } from "../shell/toast.js";

export class Attachments {
  #files = [];
  #place = find("#attachments");

  changed = new Signal();

  constructor() {
    const input = find("#files");
    find("#attach").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = ""; // the same file can be chosen again
    });
    this.#listenForDrops(find("#chat"));
    find("#message").addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      this.add(files);
    });
  }

  get empty() {
    return this.#files.length === 0;
  }

  /** Read files and add them; each that cannot be read is named in a notice. */
  async add(files) {
    for (const file of files) {
      try {
        this.#files.push(await readAttachment(file));
      } catch (failure) {
        toast(failure.message);
      }
    }
    this.#show();
  }

  /** Put attachments back, for editing. */
  restore(attachments) {
    this.#files = [...attachments];
    this.#show();
  }

  /** Remove and return all attachments. */
  take() {
    const taken = this.#files;
    this.#files = [];
    this.#show();
    return taken;
  }

  #show() {
    this.#place.hidden = this.empty;
    this.#place.replaceChildren(
      ...this.#files.map((file) => {
        const remove = () => {
          this.#files = this.#files.filter((one) => one !== file);
          this.#show();
        };
        return element(
          "span",
          { class: "chip" },
          ...label(file),
          iconButton("close", `Remove ${file.name}`, remove),
        );
      }),
    );
    this.changed.emit();
  }

  #listenForDrops(place) {
    const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
    place.addEventListener("dragover", (event) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      place.classList.add("dropping");
    });
    place.addEventListener("dragleave", (event) => {
      if (!place.contains(event.relatedTarget)) place.classList.remove("dropping");
    });
    place.addEventListener("drop", (event) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      place.classList.remove("dropping");
      this.add([...event.dataTransfer.files]);
    });
  }
}

function label({ name, text }) {
  const size = text.length < 1000 ? `${text.length}` : `${Math.round(text.length / 1000)}k`;
  return [
    icon("file"),
    element("span", { class: "chip-name" }, name),
    element("span", { class: "chip-size" }, `${size} characters`),
  ];
}

/** The attachments of a message: each opens to show its text. */
export function attachmentList(attachments = []) {
  if (!attachments.length) return null;
  const items = attachments.map((file) =>
    element(
      "details",
      { class: "attachment" },
      element("summary", { class: "chip" }, ...label(file)),
      element("pre", { tabindex: "0", role: "group", "aria-label": file.name }, file.text),
    ),
  );
  return element("div", { class: "attachment-list" }, ...items);
}
