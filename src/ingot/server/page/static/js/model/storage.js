// Local storage: one entry per conversation, and separate entries for the tokens of answers.
// Tokens are large and can be lost without harm, so they are dropped when space runs out.

import { Conversation } from "./conversation.js";
import { Signal } from "../signal.js";

const CONVERSATION = "ingot/conversation/";
const TOKENS = "ingot/tokens/";
const PREFERENCES = "ingot/preferences";
const PRESETS = "ingot/presets";

/** Emitted when something could not be stored. */
export const storageFull = new Signal();

function keysOf(prefix) {
  return Object.keys(localStorage).filter((key) => key.startsWith(prefix));
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null; // written by something else: as good as absent
  }
}

/** Every conversation that can be read. */
export function loadConversations() {
  const found = [];
  for (const key of keysOf(CONVERSATION)) {
    const conversation = loadConversation(key.slice(CONVERSATION.length));
    if (conversation) found.push(conversation);
  }
  dropTokensOfNobody(found);
  return found;
}

export function loadConversation(id) {
  try {
    return new Conversation(read(CONVERSATION + id));
  } catch {
    return null;
  }
}

export function saveConversation(conversation) {
  write(CONVERSATION + conversation.id, JSON.stringify(conversation.record));
}

export const forgetConversation = (id) => localStorage.removeItem(CONVERSATION + id);

/** Call `listener` with the id of a conversation that another tab wrote or removed. */
export function onOutsideChange(listener) {
  addEventListener("storage", ({ key }) => {
    if (key?.startsWith(CONVERSATION)) listener(key.slice(CONVERSATION.length));
  });
}

export function saveTokens(nodeId, tokens) {
  const text = JSON.stringify({ at: Date.now(), tokens });
  try {
    localStorage.setItem(TOKENS + nodeId, text);
  } catch {
    if (makeRoom()) saveTokens(nodeId, tokens);
  }
}

export const loadTokens = (nodeId) => read(TOKENS + nodeId)?.tokens ?? [];

export const loadPreferences = () => read(PREFERENCES) ?? {};
export const savePreferences = (value) => write(PREFERENCES, JSON.stringify(value));

export const loadPresets = () => read(PRESETS) ?? {};
export const savePresets = (value) => write(PRESETS, JSON.stringify(value));

function write(key, text) {
  try {
    localStorage.setItem(key, text);
  } catch {
    if (makeRoom()) write(key, text);
    else storageFull.emit();
  }
}

/** Drop the older half of the stored tokens; false if there were none. */
function makeRoom() {
  const entries = keysOf(TOKENS).map((key) => ({ key, at: read(key)?.at ?? 0 }));
  entries.sort((one, other) => one.at - other.at);
  const dropped = entries.slice(0, Math.ceil(entries.length / 2));
  for (const { key } of dropped) localStorage.removeItem(key);
  return dropped.length > 0;
}

function dropTokensOfNobody(conversations) {
  const known = new Set(conversations.flatMap(({ nodes }) => Object.keys(nodes)));
  for (const key of keysOf(TOKENS)) {
    if (!known.has(key.slice(TOKENS.length))) localStorage.removeItem(key);
  }
}
