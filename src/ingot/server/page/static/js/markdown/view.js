// Markdown on the page, growing while it is written. `show` takes the whole text so far; blocks
// that did not change keep their nodes, and only the end of the text is read again.

import { element } from "../dom.js";
import { parseBlocks } from "./blocks.js";
import { mathNode } from "../math/latex.js";
import { CodeBlock } from "./code.js";
import { inlineNodes } from "./inline.js";

export class MarkdownView {
  #shown = []; // {source, block, node, code}
  #text = "";

  element = element("div", { class: "markdown" });

  /** Show a text. With `open` more will follow. */
  show(text, open = false) {
    const from = text.startsWith(this.#text) ? this.#unsettled() : 0;
    this.#text = text;
    const kept = this.#shown.filter(({ block }) => block.start < from);
    const old = this.#shown.slice(kept.length);
    const blocks = parseBlocks(text.slice(from));
    const fresh = blocks.map((block, index) => {
      const source = text.slice(from + block.start, from + block.end);
      const placed = { ...block, start: from + block.start, end: from + block.end };
      return this.#reuse(old[index], placed, source, open && index === blocks.length - 1);
    });
    for (const { node } of old) if (!fresh.some((one) => one.node === node)) node.remove();
    fresh.forEach(({ node }, index) => {
      const there = this.element.children[kept.length + index] ?? null;
      if (there !== node) this.element.insertBefore(node, there);
    });
    this.#shown = [...kept, ...fresh];
  }

  /** Where the part begins that more text may change: the last block, and the one before it while
   * the last is a single unfinished line ("-" may become a list, a rule or plain text). */
  #unsettled() {
    const last = this.#shown.at(-1);
    if (!last) return 0;
    const before = this.#shown.at(-2);
    return last.source.includes("\n") || !before ? last.block.start : before.block.start;
  }

  #reuse(old, block, source, open) {
    if (old?.code && block.kind === "code") {
      old.code.show(block);
      return { ...old, source, block, open };
    }
    if (old && old.source === source && old.block.kind === block.kind && old.open === open) {
      return { ...old, block };
    }
    if (block.kind === "code") {
      const code = new CodeBlock(block);
      return { source, block, node: code.element, code, open };
    }
    return { source, block, node: blockNode(block, open), open };
  }
}

/** A formula in a line of its own; a wide one scrolls, also by keyboard. */
function mathBlock(block) {
  const attributes = { class: "math-block", tabindex: "0", role: "group", "aria-label": "Formula" };
  return element("div", attributes, mathNode(block.text, true) ?? codeOf(block));
}

/** The node of one block. */
function blockNode(block, open = false) {
  switch (block.kind) {
    case "heading":
      return element(`h${block.level}`, {}, ...inlineNodes(block.text, open));
    case "code":
      return new CodeBlock(block).element;
    case "math":
      return mathBlock(block);
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...blockNodes(block.blocks, open));
    case "list":
      return listNode(block, open);
    case "table":
      return tableNode(block);
    default:
      return element("p", {}, ...inlineNodes(block.text, open));
  }
}

/** The source of a formula that cannot be drawn. */
const codeOf = ({ text }) => new CodeBlock({ language: "latex", text: text.trim() }).element;

function blockNodes(blocks, open) {
  return blocks.map((block, index) => blockNode(block, open && index === blocks.length - 1));
}

function listNode({ ordered, first, items, loose }, open) {
  const nodes = items.map((blocks, index) => {
    const last = open && index === items.length - 1;
    if (loose) return element("li", {}, ...blockNodes(blocks, last));
    const parts = blocks.map((block, at) =>
      block.kind === "paragraph"
        ? inlineNodes(block.text, last && at === blocks.length - 1)
        : [blockNode(block, last && at === blocks.length - 1)],
    );
    return element("li", {}, ...parts.flat());
  });
  return element(ordered ? "ol" : "ul", { start: ordered && first !== 1 ? first : null }, ...nodes);
}

function tableNode({ head, align, rows }) {
  const row = (tag, cells) =>
    element(
      "tr",
      {},
      ...cells.map((cell, column) =>
        element(tag, { class: align[column] && `align-${align[column]}` }, ...inlineNodes(cell)),
      ),
    );
  const table = element(
    "table",
    {},
    element("thead", {}, row("th", head)),
    element("tbody", {}, ...rows.map((cells) => row("td", cells))),
  );
  return element(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": "Table" },
    table,
  );
}
