// All conversations, the current one, and the answers being generated. The parts of the page change
// conversations through this module, which emits every change.

import { Signal } from "../signal.js";
import { Conversation } from "./conversation.js";
import { Generation } from "./generation.js";
import * as storage from "./storage.js";

export class Library {
  #conversations = new Map();
  #generations = new Map(); // by conversation id
  #preferences = storage.loadPreferences();

  current = null;
  listed = new Signal(); // the list changed: names, order, who is writing
  shown = new Signal(); // another conversation or branch is in view
  ended = new Signal(); // an answer ended: its generation

  constructor() {
    for (const one of storage.loadConversations()) this.#conversations.set(one.id, one);
    storage.onOutsideChange((id) => this.#reload(id));
    addEventListener("pagehide", () => this.#saveUnfinished());
  }

  /** All conversations, newest first. */
  all() {
    return [...this.#conversations.values()].sort((one, other) => other.updated - one.updated);
  }

  /** Show a conversation by its id; an unknown id shows a new one. */
  open(id) {
    this.current = this.#conversations.get(id) ?? Conversation.begin(this.startSettings());
    this.shown.emit();
    this.listed.emit();
  }

  /** The settings of new conversations: those that were changed last. */
  startSettings() {
    return structuredClone(this.#preferences.settings ?? {});
  }

  /** Change settings of the current conversation. Absent values are the server's defaults. */
  changeSettings(changes) {
    const settings = { ...this.current.settings, ...changes };
    for (const name of Object.keys(settings)) if (settings[name] === null) delete settings[name];
    this.current.settings = settings;
    this.#preferences = { ...this.#preferences, settings };
    storage.savePreferences(this.#preferences);
    if (!this.current.empty) this.save(this.current);
  }

  rename(conversation, title) {
    conversation.rename(title);
    this.save(conversation);
    this.listed.emit();
  }

  /** Remove a conversation; the returned function restores it. */
  remove(conversation) {
    this.generation(conversation)?.stop();
    this.#conversations.delete(conversation.id);
    storage.forgetConversation(conversation.id);
    if (this.current === conversation) this.open(null);
    else this.listed.emit();
    return () => {
      this.#conversations.set(conversation.id, conversation);
      this.save(conversation);
      this.open(conversation.id);
    };
  }

  generation(conversation) {
    return this.#generations.get(conversation.id) ?? null;
  }

  /** Add a message after `parent` (by default the last one) and generate an answer. */
  send(content, parent = this.current.leaf()) {
    const question = this.current.add(parent, "user", { content });
    this.#conversations.set(this.current.id, this.current);
    this.answer(question);
  }

  /** Generate another answer to a message. */
  answer(question) {
    const conversation = this.current;
    if (this.generation(conversation)) return;
    const node = conversation.add(question, "assistant", {
      content: "",
      reasoning: "",
      finish: null,
    });
    const generation = new Generation(conversation, node);
    this.#generations.set(conversation.id, generation);
    generation.due.listen(() => this.save(conversation));
    generation.run().finally(() => {
      this.#generations.delete(conversation.id);
      this.save(conversation);
      this.ended.emit(generation);
      this.listed.emit();
    });
    this.save(conversation);
    this.shown.emit();
    this.listed.emit();
  }

  /** Regenerate: as a sibling of an answer with content, in place of one that failed without any. */
  again(node) {
    const conversation = this.current;
    if (this.generation(conversation)) return;
    const question = conversation.parent(node);
    if (!node.content && !node.reasoning && !node.children.length) conversation.drop(node);
    this.answer(question);
  }

  /** Go to the previous or next branch of a message. */
  turn(node, step) {
    if (!this.current.turn(node, step)) return;
    this.save(this.current);
    this.shown.emit();
  }

  save(conversation) {
    if (this.#conversations.has(conversation.id)) storage.saveConversation(conversation);
  }

  #reload(id) {
    if (this.#generations.has(id)) return; // this tab writes it
    const fresh = storage.loadConversation(id);
    if (fresh) this.#conversations.set(id, fresh);
    else this.#conversations.delete(id);
    if (this.current?.id === id && fresh) {
      this.current = fresh;
      this.shown.emit();
    }
    this.listed.emit();
  }

  #saveUnfinished() {
    for (const { conversation } of this.#generations.values()) this.save(conversation);
  }
}
