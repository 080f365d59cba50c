// A conversation as a file: the branch in view as Markdown, or everything as JSON.

import { element } from "../dom.js";
import { fullText } from "../model/attachments.js";

export function asMarkdown(conversation) {
  const parts = [`# ${conversation.title}`];
  if (conversation.settings.system) parts.push(`**System**\n\n${conversation.settings.system}`);
  for (const node of conversation.path()) {
    const who = node.role === "user" ? "You" : (node.model ?? "Model");
    parts.push(`## ${who}\n\n${fullText(node)}`);
  }
  return `${parts.join("\n\n")}\n`;
}

export const asJson = (conversation) => `${JSON.stringify(conversation.record, null, 2)}\n`;

/** Hand a text to the browser as a download. */
export function download(conversation, ending, text) {
  const name = conversation.title
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 60);
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = element("a", { href: address, download: `${name || "conversation"}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
