// An answer: reasoning (folded), content, errors and actions. It is updated while the stream fills
// its message.

import { advice, heading } from "../api/failure.js";
import { element, oncePerFrame, setText } from "../dom.js";
import { icon, iconButton } from "../icons.js";
import { MarkdownView } from "../markdown/view.js";
import { loadTokens } from "../model/storage.js";
import { copyButton } from "../shell/copy.js";
import { TokenView } from "../tokens/view.js";
import { branchSwitch } from "./branches.js";
import { CallsView } from "./calls.js";
import { editInPlace } from "./edit.js";
import { factsOf } from "./facts.js";
import { Reasoning } from "./reasoning.js";
import { Waiting } from "./waiting.js";

export class Answer {
  #library;
  #generation;
  #reasoning = new Reasoning();
  #text = new MarkdownView();
  #tokens = null;
  #calls;
  #waiting = new Waiting();
  #notice = element("div", { class: "notice", role: "alert", hidden: true });
  #facts = element("span", { class: "facts" });
  #bar = element("div", { class: "message-bar" });
  #continue = iconButton("forward", "Continue", () => this.#library.continue(this.node));

  constructor(library, node, actions) {
    this.#library = library;
    this.#generation = library.generation(library.current);
    if (this.#generation?.node !== node) this.#generation = null;
    this.node = node;
    this.#calls = new CallsView(library, node);
    this.actions = actions;
    this.#text.element.classList.add("answer-text");
    this.element = element("article", {
      class: "message answer",
      "aria-label": "Answer",
      "data-node": node.id,
    });
    this.#fillBar();
    this.#read();
    this.#generation?.changed.listen(oncePerFrame(() => this.show()));
    this.show();
  }

  #read() {
    this.element.classList.remove("editing");
    this.element.replaceChildren(
      this.#reasoning.element,
      this.#waiting.element,
      this.#text.element,
      this.#calls.element,
      this.#notice,
      this.#bar,
    );
  }

  /** Turn the answer into a field. What is saved is another version. */
  edit() {
    if (this.writing || this.element.classList.contains("editing")) return;
    if (this.#tokens) this.toggleTokens();
    const library = this.#library;
    editInPlace(this.element, {
      text: this.node.content,
      label: "Edit the answer",
      actions: [
        ["Save and continue", (text) => library.continue(library.revise(this.node, text))],
        ["Save", (text) => library.revise(this.node, text)],
      ],
      cancel: () => {
        this.#read();
        this.element.querySelector("[aria-label=Edit]").focus();
      },
    });
  }

  /** Whether the view shows what this generation writes. */
  follows(generation) {
    return this.#generation === generation;
  }

  get writing() {
    return this.#generation !== null && this.node.finish === null;
  }

  /** Update the view from the message. */
  show() {
    const { node, writing } = this;
    this.element.classList.toggle("writing", writing);
    this.#reasoning.show(node, writing);
    this.#text.show(node.content, writing);
    this.#calls.show(writing);
    const begun = node.content || node.reasoning || node.calls;
    this.#waiting.show(writing && !begun ? this.#generation : null);
    this.#showNotice();
    setText(this.#facts, writing ? "" : factsOf(node));
    this.#bar.hidden = writing;
    this.#continue.hidden =
      !node.content || ["stop", "tool_calls"].includes(node.finish) || node.children.length > 0;
    this.element.classList.toggle("says-nothing", !node.content && !node.reasoning && !node.calls);
    this.#tokens?.show(this.#keptTokens());
    this.actions.grew();
  }

  /** Show the answer as tokens, or as text again; `focus` goes to the first token. */
  toggleTokens(focus = false) {
    if (this.#tokens) {
      this.#tokens.element.remove();
      this.#tokens = null;
    } else {
      this.#tokens = new TokenView(this.#keptTokens());
      this.#text.element.after(this.#tokens.element);
    }
    const open = this.#tokens !== null;
    this.#text.element.hidden = open;
    this.element.querySelector(".tokens-button").setAttribute("aria-pressed", String(open));
    this.actions.grew();
    if (open && focus) this.#tokens.focus();
  }

  #keptTokens() {
    return this.#generation?.tokens ?? loadTokens(this.node.id);
  }

  #fillBar() {
    const tokens = iconButton("tokens", "Show tokens", () => this.toggleTokens(), {
      key: "T",
      class: "icon-button tokens-button",
      "aria-pressed": "false",
    });
    this.#bar.append(
      branchSwitch(this.#library, this.node) ?? "",
      copyButton("Copy answer", () => this.node.content),
      iconButton("pencil", "Edit", () => this.edit()),
      iconButton("redo", "Regenerate", () => this.#library.again(this.node), { key: "R" }),
      this.#continue,
      tokens,
      this.#facts,
    );
  }

  #showNotice() {
    const said = this.#whatWentWrong();
    this.#notice.hidden = said === null;
    if (said === null || this.#notice.dataset.said === said.title) return;
    this.#notice.dataset.said = said.title;
    this.#notice.classList.toggle("mild", said.mild === true);
    this.#notice.replaceChildren(
      icon("warning"),
      element("div", {}, element("strong", {}, said.title), element("p", {}, said.text)),
      element(
        "div",
        { class: "notice-actions" },
        ...said.buttons.map(([label, click]) =>
          element("button", { type: "button", class: "button", click }, label),
        ),
      ),
    );
  }

  #whatWentWrong() {
    const { node } = this;
    const again = ["Try again", () => this.#library.again(node)];
    const goOn = ["Continue", () => this.#library.continue(node)];
    if (node.failure) {
      const { kind, message } = node.failure;
      const text = [advice(kind), kind === "gone" ? "" : message].filter(Boolean).join(" ");
      const buttons = {
        key: [["Enter key", () => this.actions.askKey(node)]],
        context: [["New conversation", this.actions.begin], again],
        cut: node.content ? [goOn, again] : [again],
      }[kind] ?? [again];
      return { title: heading(kind), text, buttons };
    }
    if (node.finish === null && !this.writing) {
      return {
        title: "This answer is incomplete",
        text: "The page was closed while it was being generated.",
        buttons: node.content ? [goOn, again] : [again],
        mild: true,
      };
    }
    if (node.finish === "length") {
      return {
        title: "The answer reached its length limit",
        text: "It reached max tokens or the end of the model's context.",
        buttons: node.content ? [goOn] : [again],
        mild: true,
      };
    }
    return null;
  }
}
