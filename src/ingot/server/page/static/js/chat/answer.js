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
import { Reasoning } from "./reasoning.js";

const SHORTEST = 0.05; // seconds of writing that say something about speed

export class Answer {
  #library;
  #generation;
  #reasoning = new Reasoning();
  #text = new MarkdownView();
  #tokens = null;
  #waiting = element(
    "p",
    { class: "waiting" },
    element("span", { class: "waiting-dots", "aria-hidden": "true" }),
    element("span"),
  );
  #notice = element("div", { class: "notice", role: "alert", hidden: true });
  #facts = element("span", { class: "facts" });
  #bar = element("div", { class: "message-bar" });

  constructor(library, node, actions) {
    this.#library = library;
    this.#generation = library.generation(library.current);
    if (this.#generation?.node !== node) this.#generation = null;
    this.node = node;
    this.actions = actions;
    this.#text.element.classList.add("answer-text");
    this.element = element(
      "article",
      { class: "message answer", "aria-label": "Answer", "data-node": node.id },
      this.#reasoning.element,
      this.#waiting,
      this.#text.element,
      this.#notice,
      this.#bar,
    );
    this.#fillBar();
    this.#generation?.changed.listen(oncePerFrame(() => this.show()));
    this.show();
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
    this.#showWaiting();
    this.#showNotice();
    setText(this.#facts, writing ? "" : factsOf(node));
    this.#bar.hidden = writing;
    this.element.classList.toggle("says-nothing", !node.content && !node.reasoning);
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
    const tokens = iconButton("tokens", "Show tokens (T)", () => this.toggleTokens(), {
      class: "icon-button tokens-button",
      "aria-pressed": "false",
    });
    this.#bar.append(
      branchSwitch(this.#library, this.node) ?? "",
      copyButton("Copy answer", () => this.node.content),
      iconButton("redo", "Regenerate (R)", () => this.#library.again(this.node)),
      tokens,
      this.#facts,
    );
  }

  #showWaiting() {
    const { node } = this;
    const retryAt = this.#generation?.retryAt;
    this.#waiting.hidden = !this.writing || Boolean(node.content || node.reasoning);
    this.#waiting.classList.toggle("patient", !retryAt);
    if (!retryAt)
      return setText(
        this.#waiting.lastChild,
        "Processing the prompt. A model that is not loaded is loaded first.",
      );
    const seconds = Math.max(1, Math.ceil((retryAt - Date.now()) / 1000));
    setText(this.#waiting.lastChild, `The server is busy. Retrying in ${seconds} s.`);
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
    if (node.failure) {
      const { kind, message } = node.failure;
      const text = [advice(kind), kind === "gone" ? "" : message].filter(Boolean).join(" ");
      const buttons = {
        key: [["Enter key", () => this.actions.askKey(node)]],
        context: [["New conversation", this.actions.begin], again],
      }[kind] ?? [again];
      return { title: heading(kind), text, buttons };
    }
    if (node.finish === null && !this.writing) {
      return {
        title: "This answer is incomplete",
        text: "The page was closed while it was being generated.",
        buttons: [again],
        mild: true,
      };
    }
    if (node.finish === "length") {
      return {
        title: "The answer reached its length limit",
        text: "It reached max tokens or the end of the model's context.",
        buttons: [["Continue", () => this.#library.send("Continue.")]],
        mild: true,
      };
    }
    return null;
  }
}

/** The model, the number of tokens and the speed. */
function factsOf({ model, usage, times, finish }) {
  const facts = [];
  if (model) facts.push(model);
  if (usage?.written) facts.push(`${usage.written} tokens`);
  if (usage?.written > 1 && times?.writing > SHORTEST)
    facts.push(`${((usage.written - 1) / times.writing).toFixed(1)} per second`);
  if (times) facts.push(`first after ${times.first.toFixed(2)} s`);
  if (finish === "stopped") facts.push("stopped");
  return facts.join(" · ");
}
