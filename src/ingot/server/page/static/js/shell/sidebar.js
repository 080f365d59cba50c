// The list of conversations: newest first, by day, with a search and a menu for each.

import { element, find } from "../dom.js";
import { iconButton } from "../icons.js";
import { asJson, asMarkdown, download } from "./export.js";
import { openMenu } from "./menu.js";
import { toast } from "./toast.js";

const DAY = 24 * 3600 * 1000;

export class Sidebar {
  #library;
  #list = find("#conversations");
  #search = find("#search");

  /** `found` is called when a search has led to a conversation. */
  constructor(library, found) {
    this.#library = library;
    this.#search.addEventListener("input", () => this.show());
    this.#search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#openFirst(found);
      if (event.key === "Escape") this.#clear(event);
    });
    this.#list.addEventListener("keydown", (event) => this.#key(event));
    library.listed.listen(() => this.show());
  }

  focusSearch() {
    this.#search.focus();
    this.#search.select();
  }

  show() {
    const words = this.#search.value.trim().toLowerCase();
    const found = this.#library.all().filter((one) => !words || holds(one, words));
    const groups = Map.groupBy(found, ({ updated }) => dayName(updated));
    const nodes = [...groups].flatMap(([day, members]) => [
      element("h2", {}, day),
      element("ul", {}, ...members.map((one) => this.#item(one))),
    ]);
    if (!nodes.length) {
      const text = words ? "No conversation matches." : "Conversations appear here.";
      nodes.push(element("p", { class: "no-conversations" }, text));
    }
    const focused =
      this.#list.contains(document.activeElement) && document.activeElement.getAttribute("href");
    this.#list.replaceChildren(...nodes);
    if (focused) this.#focus(focused);
  }

  #focus(href) {
    this.#list.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus();
  }

  #item(conversation) {
    const { current } = this.#library;
    const here = current?.id === conversation.id;
    const writing = this.#library.generation(conversation) !== null;
    const link = element(
      "a",
      {
        href: `#/chat/${conversation.id}`,
        title: conversation.title,
        "aria-current": here ? "page" : null,
      },
      writing
        ? element("span", { class: "writing-dot", role: "img", "aria-label": "is being answered" })
        : null,
      element("span", { class: "conversation-title" }, conversation.title || "Untitled"),
    );
    const menu = iconButton("dots", `Menu of ${conversation.title}`, () =>
      this.#menu(conversation, menu, link),
    );
    menu.title = "Rename, export, delete";
    return element("li", { class: here ? "current" : null }, link, menu);
  }

  #menu(conversation, button, link) {
    openMenu(button, [
      { icon: "pencil", label: "Rename", run: () => this.#rename(conversation, link) },
      {
        icon: "download",
        label: "Export as Markdown",
        run: () => download(conversation, "md", asMarkdown(conversation)),
      },
      {
        icon: "download",
        label: "Export as JSON",
        run: () => download(conversation, "json", asJson(conversation)),
      },
      { icon: "trash", label: "Delete", danger: true, run: () => this.remove(conversation) },
    ]);
  }

  remove(conversation) {
    const restore = this.#library.remove(conversation);
    toast("Conversation deleted.", { label: "Undo", run: restore });
  }

  #rename(conversation, link) {
    const field = element("input", {
      class: "rename-field",
      "aria-label": "Name of the conversation",
      maxlength: "200",
    });
    field.value = conversation.title;
    let kept = true;
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") kept = false;
      if (event.key !== "Enter" && event.key !== "Escape") return;
      field.blur();
      this.#focus(link.getAttribute("href"));
    });
    field.addEventListener("blur", () => {
      if (kept) this.#library.rename(conversation, field.value);
      else this.show();
    });
    link.replaceWith(field);
    field.focus();
    field.select();
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.tagName !== "A") return;
    const links = [...this.#list.querySelectorAll("a")];
    event.preventDefault();
    links[links.indexOf(event.target) + step]?.focus();
  }

  #openFirst(found) {
    const link = this.#list.querySelector("a");
    if (!link) return;
    link.click();
    found();
  }

  #clear(event) {
    if (!this.#search.value) return;
    event.stopPropagation();
    this.#search.value = "";
    this.show();
  }
}

function holds(conversation, words) {
  if (conversation.title.toLowerCase().includes(words)) return true;
  return Object.values(conversation.nodes).some(({ content }) =>
    content?.toLowerCase().includes(words),
  );
}

function dayName(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - DAY) return "Yesterday";
  if (time >= midnight - 7 * DAY) return "This week";
  return new Date(time).toLocaleDateString("en", { month: "long", year: "numeric" });
}
