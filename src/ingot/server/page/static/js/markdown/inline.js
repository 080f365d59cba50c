// Markdown within a line: emphasis, code, formulas, links, breaks. Text comes in, DOM nodes go out.
// HTML is text. Pictures are links: the page loads nothing from elsewhere. Links lead only
// to http and https; anything else stays as text.

import { element } from "../dom.js";
import { mathNode } from "../math/latex.js";

const DEEPEST = 12;
const LONGEST_LINK = 2000;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const ADDRESS = /^https?:\/\/[^\s<>]+/i;
const LABEL = /(?:\\.|`[^`]*`|[^[\]\\`]|\[[^\]]*\])*/.source;
const TARGET = /[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*/.source;
const TITLE = /(?:\s+(?:"[^"]*"|'[^']*'))?/.source;
const LINK = new RegExp(`^!?\\[(${LABEL})\\]\\(\\s*<?(${TARGET})>?${TITLE}\\s*\\)`);
const FORMULAS = [
  { open: "$$", close: "$$", display: true },
  { open: "\\[", close: "\\]", display: true },
  { open: "\\(", close: "\\)" },
  { open: "$", close: "$", dollar: true },
];
const LONGEST_FORMULA = 2000;
const MARKS = [
  { mark: "**", tag: "strong" },
  { mark: "__", tag: "strong", words: true },
  { mark: "~~", tag: "del" },
  { mark: "*", tag: "em" },
  { mark: "_", tag: "em", words: true },
];

/** The nodes of a text. With `open` more text may follow, so open marks count as closed at its end. */
export function inlineNodes(text, open = false, depth = 0) {
  return new Line(text, open, depth).nodes();
}

class Line {
  #nodes = [];
  #plain = "";
  #endless = new Set(); // marks without an end from here on: not looked for again

  constructor(text, open, depth) {
    this.text = text;
    this.open = open;
    this.depth = depth;
    this.at = 0;
  }

  nodes() {
    while (this.at < this.text.length) {
      if (!this.#special(this.text[this.at])) {
        this.#plain += this.text[this.at];
        this.at += 1;
      }
    }
    this.#flush();
    return this.#nodes;
  }

  #special(character) {
    switch (character) {
      case "$":
        return FORMULAS.some((form) => this.#formula(form));
      case "\\":
        return FORMULAS.some((form) => this.#formula(form)) || this.#escape();
      case "`":
        return this.#code();
      case "\n":
        this.#plain = this.#plain.trimEnd();
        return this.#push(element("br"), 1);
      case "!":
      case "[":
        return this.#link();
      case "<":
        return this.#address(1, ">");
      case "h":
      case "H":
        return this.#address(0, "");
      case "*":
      case "_":
      case "~":
        return MARKS.some((kind) => this.#emphasis(kind));
      default:
        return false;
    }
  }

  #escape() {
    const next = this.text[this.at + 1] ?? "";
    if (next === "\n") return this.#push(element("br"), 2);
    if (!ESCAPABLE.test(next)) return false;
    this.#plain += next;
    this.at += 2;
    return true;
  }

  /** A formula. Prices are none: a dollar sign opens before and closes after something that is not a
   * space, and no digit follows the end. */
  #formula({ open, close, display = false, dollar = false }) {
    const { text, at } = this;
    if (!text.startsWith(open, at) || this.#endless.has(open)) return false;
    const from = at + open.length;
    const to = text.indexOf(close, from);
    if (to < 0 || to - from > LONGEST_FORMULA) {
      this.#endless.add(open);
      return false;
    }
    if (to === from) return false;
    const isPrice = /\s/.test(text[from] + text[to - 1]) || /\d/.test(text[to + 1] ?? "");
    if (dollar && isPrice) return false;
    const node = mathNode(text.slice(from, to), display);
    if (!node) return this.#push(element("code", {}, text.slice(from, to)), to + close.length - at);
    return this.#push(node, to + close.length - at);
  }

  #code() {
    const [fence] = /^`+/.exec(this.text.slice(this.at));
    const from = this.at + fence.length;
    let to = this.#endless.has(fence) ? -1 : closingFence(this.text, fence, from);
    let after = to + fence.length;
    if (to < 0) {
      this.#endless.add(fence);
      if (!this.open || this.text.indexOf("\n", from) >= 0) {
        this.#plain += fence;
        this.at = from;
        return true;
      }
      to = after = this.text.length;
    }
    const inner = this.text.slice(from, to).replaceAll("\n", " ");
    const padded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    return this.#push(element("code", {}, padded ? inner.slice(1, -1) : inner), after - this.at);
  }

  #link() {
    if (this.depth >= DEEPEST || this.text.indexOf("](", this.at) < 0) return false;
    const match = LINK.exec(this.text.slice(this.at, this.at + LONGEST_LINK));
    if (!match || !ADDRESS.test(match[2])) return false;
    const label = inlineNodes(match[1], false, this.depth + 1);
    return this.#push(link(match[2], label.length ? label : [match[2]]), match[0].length);
  }

  #address(skip, close) {
    if (skip === 0 && /\w/.test(this.text[this.at - 1] ?? "")) return false;
    const from = this.at + skip;
    const match = ADDRESS.exec(this.text.slice(from, from + LONGEST_LINK));
    if (!match) return false;
    const href = close ? match[0] : withoutEnd(match[0]);
    if (close && this.text[from + href.length] !== close) return false;
    return this.#push(link(href, [href]), skip + href.length + close.length);
  }

  #emphasis({ mark, tag, words = false }) {
    const { text, at } = this;
    if (!text.startsWith(mark, at) || this.depth >= DEEPEST) return false;
    const from = at + mark.length;
    if (/\s/.test(text[from] ?? "") || (words && /\w/.test(text[at - 1] ?? ""))) return false;
    let to = this.#endless.has(mark) ? -1 : closingMark(text, mark, from, words);
    let after = to + mark.length;
    if (to < 0) {
      this.#endless.add(mark);
      if (!this.open || mark !== "**") return false;
      to = after = text.length;
    }
    const open = this.open && after === text.length;
    const inner = inlineNodes(text.slice(from, to), open, this.depth + 1);
    return this.#push(inner.length ? element(tag, {}, ...inner) : null, after - at);
  }

  #push(node, length) {
    this.#flush();
    if (node) this.#nodes.push(node);
    this.at += length;
    return true;
  }

  #flush() {
    if (this.#plain) this.#nodes.push(document.createTextNode(this.#plain));
    this.#plain = "";
  }
}

function link(href, label) {
  return element("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...label);
}

function closingFence(text, fence, from) {
  for (let at = text.indexOf(fence, from); at >= 0; at = text.indexOf(fence, at)) {
    let end = at;
    while (text[end] === "`") end += 1;
    if (end - at === fence.length) return at;
    at = end;
  }
  return -1;
}

/** Where a mark that ends the emphasis begun before `from` stands, or -1. Code is skipped. */
function closingMark(text, mark, from, words) {
  const character = mark[0];
  for (let at = from; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "`") {
      const [fence] = /^`+/.exec(text.slice(at));
      const close = closingFence(text, fence, at + fence.length);
      at = (close < 0 ? at : close) + fence.length - 1;
    } else if (text[at] === character) {
      let end = at;
      while (text[end] === character) end += 1;
      const run = end - at;
      const closes = at > from && !/\s/.test(text[at - 1]) && fits(run, mark.length);
      const cut = end - mark.length; // of three marks the outer ones end what began first
      if (closes && !(words && /\w/.test(text[end] ?? ""))) return cut;
      at = end - 1;
    }
  }
  return -1;
}

/** A run of one mark ends emphasis, of two strong text, of three both. */
const fits = (run, length) => run === length || run >= 3;

/** An address in running text without the punctuation that ends the sentence. */
function withoutEnd(address) {
  let end = address.replace(/[*_~`]+$/, "").replace(/[.,:;!?'"]+$/, "");
  while (end.endsWith(")") && end.split(")").length > end.split("(").length) end = end.slice(0, -1);
  return end;
}
