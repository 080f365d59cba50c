// One side of the comparison: its model and settings, and the answers. Its conversation is not
// stored until the reader keeps it.

import { advice, heading } from "../api/failure.js";
import { factsOf } from "../chat/facts.js";
import { Waiting } from "../chat/waiting.js";
import { element, oncePerFrame, setText } from "../dom.js";
import { MarkdownView } from "../markdown/view.js";
import { Conversation } from "../model/conversation.js";
import { Generation } from "../model/generation.js";
import { presetNames, presetSettings } from "../model/presets.js";
import { Signal } from "../signal.js";

export class Pane {
  #conversation;
  #generation = null;
  #model = element("select");
  #preset = element("select");
  #temperature = element("input", {
    type: "number",
    min: 0,
    max: 2,
    step: 0.1,
    placeholder: "auto",
  });
  #system = element("textarea", { rows: "2", placeholder: "How the model should behave" });
  #messages = element("div", { class: "pane-messages" });
  #keep = element("button", { type: "button", class: "link-button" }, "Keep as a conversation");

  changed = new Signal(); // whether it writes

  /** `keep(conversation)` stores the conversation and shows it. */
  constructor(name, keep) {
    this.#keep.addEventListener("click", () => {
      const kept = this.#conversation;
      this.begin(kept.settings);
      keep(kept);
    });
    this.#preset.addEventListener("change", () => this.#choosePreset());
    const field = (label, node) => element("label", {}, element("span", {}, label), node);
    this.element = element(
      "section",
      { class: "pane", "aria-label": name },
      element(
        "div",
        { class: "pane-settings" },
        field("Model", this.#model),
        field("Preset", this.#preset),
        field("Temperature", this.#temperature),
        field("System prompt", this.#system),
      ),
      this.#messages,
      element("div", { class: "pane-foot" }, this.#keep),
    );
  }

  get writing() {
    return this.#generation !== null;
  }

  get empty() {
    return this.#conversation.empty;
  }

  /** Start anew with settings. */
  begin(settings) {
    this.stop();
    this.#conversation = Conversation.begin(settings);
    this.#messages.replaceChildren();
    this.#showSettings();
  }

  /** The models that can be chosen; `index` is the one that this side begins with. */
  offer(names, index) {
    const before = this.#model.value;
    this.#model.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    this.#model.value = names.includes(before) ? before : names[Math.min(index, names.length - 1)];
    const presets = presetNames().map((name) => element("option", { value: name }, name));
    this.#preset.replaceChildren(element("option", { value: "" }, "None"), ...presets);
  }

  stop() {
    this.#generation?.stop();
  }

  async send(content) {
    const conversation = this.#conversation;
    conversation.settings = { ...conversation.settings, ...this.#settings() };
    const question = conversation.add(conversation.leaf(), "user", { content });
    const node = conversation.add(question, "assistant", {
      content: "",
      reasoning: "",
      finish: null,
    });
    const generation = new Generation(conversation, node);
    const answer = answerView(generation);
    this.#messages.append(element("div", { class: "bubble" }, content), answer.element);
    this.#generation = generation;
    this.#show();
    generation.changed.listen(oncePerFrame(() => answer.show(this.#generation === generation)));
    answer.show(true);
    this.#messages.scrollTop = this.#messages.scrollHeight;
    await generation.run();
    if (this.#generation === generation) this.#generation = null;
    answer.show(false);
    this.#show();
  }

  #settings() {
    const settings = { model: this.#model.value };
    const temperature = this.#temperature.value;
    settings.temperature = temperature === "" ? undefined : Number(temperature);
    settings.system = this.#system.value.trim() || undefined;
    return settings;
  }

  #choosePreset() {
    const kept = Object.entries(presetSettings(this.#preset.value)).filter(
      ([, value]) => value !== null,
    );
    this.#conversation.settings = Object.fromEntries(kept);
    this.#temperature.value = this.#conversation.settings.temperature ?? "";
  }

  #showSettings() {
    const { temperature, system } = this.#conversation.settings;
    this.#temperature.value = temperature ?? "";
    this.#system.value = system ?? "";
    this.#show();
  }

  #show() {
    this.#keep.hidden = this.empty || this.writing;
    this.changed.emit();
  }
}

/** The view of an answer: what it waits for, text, what went wrong, facts. */
function answerView(generation) {
  const { node } = generation;
  const text = new MarkdownView();
  const problem = element("p", { class: "problem", role: "alert", hidden: true });
  const facts = element("p", { class: "hint" });
  const thinking = element("p", { class: "hint" }, "Thinking");
  const waiting = new Waiting();
  const show = (writing) => {
    text.show(node.content || (writing ? "" : node.reasoning), writing);
    const silent = writing && !node.content;
    thinking.hidden = !silent || !node.reasoning;
    waiting.show(silent && !node.reasoning ? generation : null);
    const { failure } = node;
    problem.hidden = !failure;
    if (failure)
      setText(
        problem,
        [heading(failure.kind), advice(failure.kind), failure.message].filter(Boolean).join(". "),
      );
    setText(facts, writing ? "" : factsOf(node));
  };
  return {
    element: element(
      "article",
      { class: "pane-answer", "aria-label": "Answer" },
      waiting.element,
      thinking,
      text.element,
      problem,
      facts,
    ),
    show,
  };
}
