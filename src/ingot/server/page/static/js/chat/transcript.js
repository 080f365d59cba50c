// The messages of the current conversation. It stays scrolled to the end while an answer grows,
// unless the reader has scrolled up.

import { find } from "../dom.js";
import { Answer } from "./answer.js";
import { emptyState } from "./empty.js";
import { Question } from "./question.js";

const NEAR = 48; // pixels from the end that still count as the end

export class Transcript {
  #library;
  #actions;
  #scroll = find("#scroll");
  #list = find("#messages");
  #jump = find("#jump");
  #views = [];
  #atEnd = true;
  #top = 0; // where the reader was at the last look

  /** actions: {askKey, begin, suggest, lostFocus}. */
  constructor(library, actions) {
    this.#library = library;
    this.#actions = { ...actions, grew: () => this.#follow() };
    library.shown.listen(() => this.show());
    library.changed.listen((node) => this.#views.find((view) => view.node === node)?.show());
    this.#scroll.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#jump.addEventListener("click", () => this.toEnd(true));
    new ResizeObserver(() => this.#follow()).observe(this.#scroll);
  }

  /** Show the current path; messages that stay keep their views. */
  show() {
    const { current } = this.#library;
    const focused = this.#focused();
    const other = this.shownId !== current.id;
    this.shownId = current.id;
    const path = current.path();
    const same = other ? 0 : this.#sameUpTo(path);
    this.#views = [
      ...this.#views.slice(0, same),
      ...path.slice(same).map((node) => this.#view(node)),
    ];
    if (path.length) this.#list.replaceChildren(...this.#views.map((view) => view.element));
    else this.#list.replaceChildren(emptyState(this.#actions.suggest));
    this.#scroll.classList.toggle("is-empty", path.length === 0);
    if (focused) this.#refocus(focused);
    if (other || path.at(-1)?.finish === null) this.toEnd();
    else this.#scrolled();
  }

  last(role) {
    return this.#views.findLast((view) => view.node.role === role) ?? null;
  }

  toEnd(smooth = false) {
    this.#atEnd = true;
    this.#scroll.scrollTo({
      top: this.#scroll.scrollHeight,
      behavior: smooth ? "smooth" : "instant",
    });
    this.#jump.hidden = true;
  }

  /** How many views from the top still show the right message with the right number of versions. */
  #sameUpTo(path) {
    const { current } = this.#library;
    const generation = this.#library.generation(current);
    const changed = path.findIndex((node, index) => {
      const view = this.#views[index];
      return (
        view?.node !== node ||
        (node === generation?.node && !view.follows(generation)) || // it is being continued
        view.branches !== current.place(node).count ||
        view.element.classList.contains("editing")
      );
    });
    return changed < 0 ? path.length : changed;
  }

  /** Which button of which message has the focus: its message may be about to go. */
  #focused() {
    const { activeElement } = document;
    const index = this.#views.findIndex((view) => view.element.contains(activeElement));
    return index < 0 ? null : { index, label: activeElement.getAttribute("aria-label") };
  }

  #refocus({ index, label }) {
    const view = this.#views[index]?.element;
    if (view?.contains(document.activeElement)) return;
    const button = view?.querySelector(`[aria-label="${CSS.escape(label ?? "")}"]`);
    if (button) button.focus();
    else this.#actions.lostFocus();
  }

  #view(node) {
    const view =
      node.role === "user"
        ? new Question(this.#library, node)
        : new Answer(this.#library, node, this.#actions);
    view.branches = this.#library.current.place(node).count;
    return view;
  }

  /** Only going up leaves the end: an answer that grows moves the end away from the reader too. */
  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroll;
    if (scrollHeight - scrollTop - clientHeight < NEAR) this.#atEnd = true;
    else if (scrollTop < this.#top) this.#atEnd = false;
    this.#top = scrollTop;
    this.#jump.hidden = this.#atEnd;
  }

  #follow() {
    if (this.#atEnd) this.toEnd();
    else this.#scrolled();
  }
}
