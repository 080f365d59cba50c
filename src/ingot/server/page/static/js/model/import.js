// Conversations from files: the text of a JSON file comes in, conversations go out. It reads this
// page's own export, llama.cpp's and Open WebUI's exports, and lists of messages in OpenAI's form.

import { Conversation, newId } from "./conversation.js";

/** All conversations of a file; throws an error if there is none. */
export function conversationsFrom(text) {
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    throw new Error("it is not JSON");
  }
  const isMessages = Array.isArray(content) && content.some((one) => one?.role);
  const entries = Array.isArray(content) && !isMessages ? content : [content];
  const found = entries.map(conversationOf).filter((one) => one && !one.empty);
  if (!found.length) throw new Error("it contains no conversation in a known form");
  return found;
}

function conversationOf(entry) {
  if (Array.isArray(entry)) return fromMessages("", entry);
  if (entry?.nodes?.root) return ownExport(entry);
  if (entry?.chat) return openWebUi(entry);
  if (Array.isArray(entry?.messages)) {
    return fromMessages(entry.conv?.name ?? entry.title ?? "", entry.messages);
  }
  return null;
}

/** This page's own form. The copy gets an id of its own, so that nothing is overwritten, and no
 * tool that was allowed elsewhere is allowed in it. */
function ownExport({ title, named, created, settings, nodes }) {
  if (!Object.entries(nodes).every((entry) => isNode(entry, nodes))) return null;
  return new Conversation({
    id: newId(),
    title: String(title ?? ""),
    named: named === true,
    created: Number(created) || Date.now(),
    updated: Date.now(),
    settings: { ...settings },
    nodes: structuredClone(nodes),
  });
}

function isNode([key, node], nodes) {
  const { id, role, content, children, chosen, calls = [], attachments = [] } = node ?? {};
  return (
    key === id &&
    Array.isArray(children) &&
    children.every((child) => nodes[child]?.parent === id) &&
    (chosen ? children.includes(chosen) : chosen === null) &&
    (role === "root" || (["user", "assistant"].includes(role) && typeof content === "string")) &&
    haveTexts(calls, "name", "text") &&
    haveTexts(attachments, "name", "text")
  );
}

const haveTexts = (entries, ...names) =>
  Array.isArray(entries) &&
  entries.every((entry) => names.every((name) => typeof entry?.[name] === "string"));

function openWebUi({ title, chat }) {
  const messages = Object.values(chat.history?.messages ?? {});
  const listed = messages.length ? messages : (chat.messages ?? []);
  return fromMessages(title ?? chat.title ?? "", listed, chat.history?.currentId);
}

/** Messages, each with its parent's id if it has several versions; else each follows the last. */
function fromMessages(title, messages, current = null) {
  const conversation = Conversation.begin({});
  const placed = new Map(); // by the file's ids
  let last = conversation.leaf();
  for (const message of messages) {
    const text = textOf(message?.content);
    const before = placed.get(message?.parentId ?? message?.parent) ?? last;
    if (message?.role === "system" && text) conversation.settings.system = text;
    if (["user", "assistant"].includes(message?.role) && text !== null) {
      last = conversation.add(before, message.role, fieldsOf(message, text));
      placed.set(message.id, last);
    } else if (message?.id !== undefined) placed.set(message.id, before);
  }
  choose(conversation, placed.get(current));
  if (title) conversation.rename(String(title));
  return conversation;
}

function fieldsOf({ role, model, reasoning_content: reasoning }, content) {
  if (role === "user") return { content };
  const known = typeof model === "string" ? { model } : {};
  return {
    content,
    reasoning: typeof reasoning === "string" ? reasoning : "",
    finish: "stop",
    ...known,
  };
}

function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return null;
  return content.map((part) => part?.text ?? "").join("");
}

/** Choose the versions that lead to a message. */
function choose(conversation, node) {
  for (let at = node; at?.parent; at = conversation.parent(at)) {
    conversation.parent(at).chosen = at.id;
  }
}
