// The tool calls of an answer: what the model calls, and what came back. Nothing runs before the
// user allows it; the result of a tool that the user described is typed in.

import { element, setText } from "../dom.js";
import { icon } from "../icons.js";

export class CallsView {
  #library;
  #node;
  #shown = ""; // what is drawn, so that a field keeps its text while nothing changes

  element = element("div", { class: "calls", hidden: true });

  constructor(library, node) {
    this.#library = library;
    this.#node = node;
  }

  show(writing) {
    const { calls = [] } = this.#node;
    const running = calls.map((call) => this.#library.isRunning(call));
    const state = JSON.stringify([calls, running, writing]);
    if (state === this.#shown) return;
    this.#shown = state;
    this.element.hidden = calls.length === 0;
    this.element.replaceChildren(...calls.map((call) => this.#card(call, writing)));
  }

  #card(call, writing) {
    const { name, text, result } = call;
    const running = this.#library.isRunning(call);
    const asks = !result && !running && !writing;
    return element(
      "section",
      { class: "call", "aria-label": `Call of ${name}` },
      element("h2", {}, icon("tool"), element("code", {}, name), status(result, running, writing)),
      element("pre", { tabindex: "0", role: "group", "aria-label": "Arguments" }, pretty(text)),
      result
        ? element(
            "details",
            { class: result.failed ? "call-result failed" : "call-result" },
            element("summary", {}, icon("fold"), result.failed ? "Error" : "Result"),
            element("pre", { tabindex: "0", role: "group", "aria-label": "Result" }, result.text),
          )
        : null,
      asks ? this.#question(call) : null,
    );
  }

  #question(call) {
    const library = this.#library;
    const { current } = library;
    const found = library.toolbox.find(current.settings, call.name);
    const button = (label, click, kind = "button") =>
      element("button", { type: "button", class: kind, click }, label);
    const refuse = () =>
      library.resolve(this.#node, call, { text: "The user refused this call.", failed: true });
    if (!found) return this.#field(call, refuse, button);
    return element(
      "div",
      { class: "call-ask" },
      element("p", {}, `Run this at the MCP server ${found.server}?`),
      element(
        "div",
        { class: "call-actions" },
        button("Allow once", () => library.runCall(this.#node, call), "button primary"),
        button("Always allow in this conversation", () => {
          library.allow(found);
          library.runCall(this.#node, call);
        }),
        button("Refuse", refuse),
      ),
    );
  }

  #field(call, refuse, button) {
    const field = element("textarea", {
      rows: "2",
      class: "call-field",
      "aria-label": `Result of ${call.name}`,
      placeholder: "What the tool returns",
    });
    const send = () =>
      this.#library.resolve(this.#node, call, { text: field.value.trim(), failed: false });
    return element(
      "div",
      { class: "call-ask" },
      field,
      element(
        "div",
        { class: "call-actions" },
        button("Send result", send, "button primary"),
        button("Refuse", refuse),
      ),
    );
  }
}

function status(result, running, writing) {
  const text = writing ? "being written" : running ? "running" : result ? "" : "waits for you";
  const node = element("span", { class: "call-state" });
  setText(node, text);
  return node;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
