// All conversations, the current one, and the answers being generated. The parts of the page change
// conversations through this module, which emits every change.

import { Signal } from "../signal.js";
import { Conversation } from "./conversation.js";
import { Generation } from "./generation.js";
import { Queues } from "./queues.js";
import { mayRunAlone, Toolbox } from "./toolbox.js";
import * as storage from "./storage.js";

export class Library {
  #conversations = new Map();
  #generations = new Map(); // by conversation id
  #running = new WeakSet(); // tool calls
  #preferences = storage.loadPreferences();

  current = null;
  queues = new Queues();
  toolbox = new Toolbox();
  listed = new Signal(); // the list changed: names, order, who is writing
  shown = new Signal(); // another conversation or branch is in view
  changed = new Signal(); // a message changed, but not by a generation
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
    this.queues.clear(conversation.id);
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

  /** Add a message, {content, attachments}, after `parent` and generate an answer. */
  send(message, parent = this.current.leaf(), conversation = this.current) {
    const question = conversation.add(parent, "user", message);
    this.#conversations.set(conversation.id, conversation);
    this.answer(question, conversation);
  }

  /** Send a message when the current answer is complete. */
  enqueue(message) {
    this.queues.add(this.current.id, message);
  }

  /** Send the first message of the queue of a conversation, if there is one. */
  sendQueued(conversation = this.current) {
    if (this.generation(conversation)) return;
    const message = this.queues.take(conversation.id);
    if (message) this.send(message, conversation.leaf(), conversation);
  }

  /** Generate another answer to a message. */
  answer(question, conversation = this.current) {
    if (this.generation(conversation)) return;
    const empty = { content: "", reasoning: "", finish: null };
    this.#generate(conversation, conversation.add(question, "assistant", empty));
  }

  /** Let the model continue an answer where it ends. */
  continue(node) {
    if (this.generation(this.current) || !node.content) return;
    node.finish = null;
    delete node.failure;
    this.#generate(this.current, node);
  }

  /** Add another version of an answer, written by the user. */
  revise(node, content) {
    const { current } = this;
    const fields = { content, reasoning: "", finish: "edited", model: node.model };
    const edited = current.add(current.parent(node), "assistant", fields);
    this.save(current);
    this.shown.emit();
    return edited;
  }

  /** Let the calls of an MCP tool run in this conversation without asking. */
  allow({ server, tool }) {
    this.current.allowed = [...this.current.allowed, `${server}/${tool}`];
    this.save(this.current);
  }

  isRunning(call) {
    return this.#running.has(call);
  }

  /** Run a call of an MCP tool; its result continues the answer. */
  async runCall(node, call, conversation = this.current) {
    const tool = this.toolbox.find(conversation.settings, call.name);
    if (!tool) return;
    this.#running.add(call);
    this.changed.emit(node);
    const result = await this.toolbox.run(tool, call.text);
    this.#running.delete(call);
    this.resolve(node, call, result, conversation);
  }

  /** Give a call its result, {text, failed}. After the last result the model goes on. */
  resolve(node, call, result, conversation = this.current) {
    call.result = result;
    this.save(conversation);
    this.changed.emit(node);
    const complete = node.calls.every((one) => one.result);
    if (complete && !node.children.length) this.answer(node, conversation);
  }

  #runAllowed(conversation, node) {
    if (!mayRunAlone(conversation, node)) return;
    for (const call of node.calls) {
      const found = this.toolbox.find(conversation.settings, call.name);
      const allowed = found && conversation.allowed.includes(`${found.server}/${found.tool}`);
      if (allowed) this.runCall(node, call, conversation);
    }
  }

  /** Add a conversation that was read from a file, and show it. */
  adopt(conversation) {
    this.#conversations.set(conversation.id, conversation);
    this.save(conversation);
    this.open(conversation.id);
  }

  #generate(conversation, node) {
    const tools = (settings) => this.toolbox.requestFields(settings);
    const generation = new Generation(conversation, node, tools);
    this.#generations.set(conversation.id, generation);
    generation.due.listen(() => this.save(conversation));
    generation.run().finally(() => {
      this.#generations.delete(conversation.id);
      this.save(conversation);
      this.ended.emit(generation);
      this.listed.emit();
      if (node.finish === "stop") this.sendQueued(conversation);
      if (node.finish === "tool_calls") this.#runAllowed(conversation, node);
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
    if (!node.content && !node.reasoning && !node.calls && !node.children.length)
      conversation.drop(node);
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
