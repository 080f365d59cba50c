// A conversation is a tree: a message's children are its alternative continuations.
// Every message remembers the chosen child, so one path leads from the root to a leaf.
// It is only data: it knows neither the page nor the server.

import { fullText } from "./attachments.js";
import { callMessages } from "./toolbox.js";

const ROOT = "root";
const TITLE_LENGTH = 60;

export const newId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36)).join("");

export class Conversation {
  /** From a record that `record` returned; throws if it is invalid. */
  constructor(record) {
    const { id, title, named, created, updated, settings, nodes, allowed = [] } = record;
    if (!id || !nodes?.[ROOT]) throw new TypeError("not a conversation");
    Object.assign(this, { id, title, named, created, updated, settings, nodes, allowed });
  }

  static begin(settings) {
    const now = Date.now();
    const nodes = { [ROOT]: { id: ROOT, parent: null, role: ROOT, children: [], chosen: null } };
    const facts = { id: newId(), title: "", named: false, created: now, updated: now };
    return new Conversation({ ...facts, settings: { ...settings }, nodes });
  }

  get record() {
    return { ...this };
  }

  get empty() {
    return this.nodes[ROOT].children.length === 0;
  }

  /** The messages along the chosen branches, first to last. */
  path() {
    const found = [];
    let node = this.nodes[ROOT];
    while (node.chosen) {
      node = this.nodes[node.chosen];
      found.push(node);
    }
    return found;
  }

  leaf() {
    return this.path().at(-1) ?? this.nodes[ROOT];
  }

  parent(node) {
    return this.nodes[node.parent];
  }

  /** Add a message after `parent`, and choose it. */
  add(parent, role, fields) {
    const node = { id: newId(), parent: parent.id, role, children: [], chosen: null, ...fields };
    this.nodes[node.id] = node;
    parent.children.push(node.id);
    parent.chosen = node.id;
    if (role === "user" && !this.named && parent.id === ROOT) this.title = titleFrom(fields);
    this.touch();
    return node;
  }

  /** Remove a message that has no children. */
  drop(node) {
    const parent = this.parent(node);
    parent.children = parent.children.filter((id) => id !== node.id);
    parent.chosen = parent.children.at(-1) ?? null;
    delete this.nodes[node.id];
  }

  /** The position of a message among its siblings. */
  place(node) {
    const all = this.parent(node).children;
    return { index: all.indexOf(node.id), count: all.length };
  }

  /** Choose the sibling `step` places before or after this message, if there is one. */
  turn(node, step) {
    const parent = this.parent(node);
    const next = parent.children[parent.children.indexOf(node.id) + step];
    if (!next) return null;
    parent.chosen = next;
    return this.nodes[next];
  }

  /** The messages that the model reads to answer `node`. */
  messagesUpTo(node) {
    const messages = [];
    for (let at = node; at.id !== ROOT; at = this.parent(at)) {
      const content = fullText(at);
      if (at.calls?.length) messages.unshift(...callMessages(at));
      else if (content) messages.unshift({ role: at.role, content });
    }
    const system = this.settings.system?.trim();
    return system ? [{ role: "system", content: system }, ...messages] : messages;
  }

  rename(title) {
    this.named = title.trim() !== "";
    const first = this.nodes[this.nodes[ROOT].children[0]];
    this.title = this.named ? title.trim() : titleFrom(first ?? { content: "" });
  }

  touch() {
    this.updated = Date.now();
  }
}

function titleFrom({ content, attachments }) {
  const text = content.trim() || attachments?.[0]?.name || "";
  const line = text.split("\n", 1)[0].replace(/\s+/g, " ");
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1).trimEnd()}…` : line;
}
