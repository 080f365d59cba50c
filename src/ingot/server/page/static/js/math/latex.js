// LaTeX formulas as MathML, which browsers draw themselves. A formula's source comes in, a `math`
// element goes out, or null for what this file does not know: the page then shows the source.

import { mathElement as node } from "../dom.js";
import {
  ACCENTS,
  DELIMITERS,
  FUNCTIONS,
  inAlphabet,
  LARGE,
  LETTERS,
  OPERATORS,
  SPACES,
  UNDER,
} from "./symbols.js";
import { ENVIRONMENTS, tableNode } from "./tables.js";

const LONGEST = 5000; // characters
const DEEPEST = 50; // groups within each other
const TOKEN = /\s+|\\([A-Za-z]+\*?|.)|[^]/gu;
const ALPHABETS = {
  mathbf: "bold",
  boldsymbol: "bold",
  bm: "bold",
  mathbb: "blackboard",
  mathcal: "script",
  mathscr: "script",
  mathfrak: "fraktur",
  mathsf: "sans",
  mathtt: "mono",
};
const TEXTS = new Set(["text", "textrm", "textbf", "textit", "mbox", "mathrm", "operatorname"]);
const SIZES = /^(?:bigg?|Bigg?)[lrm]?$/;
const IGNORED = new Set(["displaystyle", "textstyle", "limits", "nolimits", "nonumber", "notag"]);

class Unknown extends Error {}

/** The formula as an element, or null. `display`: it stands in a line of its own. */
export function mathNode(source, display = false) {
  if (source.length > LONGEST) return null;
  try {
    const parser = new Parser(source, display);
    const row = parser.row();
    if (!parser.done) throw new Unknown();
    return node("math", { display: display ? "block" : null }, ...row);
  } catch (error) {
    if (error instanceof Unknown) return null;
    throw error;
  }
}

class Parser {
  #tokens;
  #at = 0;
  #depth = 0;

  constructor(source, display) {
    const text = source.replace(/(?<!\\)%[^\n]*/g, "");
    this.#tokens = [...text.matchAll(TOKEN)].map(([all, command]) =>
      command === undefined ? { text: /^\s/.test(all) ? " " : all } : { command },
    );
    this.display = display;
  }

  get done() {
    return this.#at >= this.#tokens.length;
  }

  get #next() {
    return this.#tokens[this.#at];
  }

  #is(text) {
    return this.#next?.text === text;
  }

  isCommand(...names) {
    return names.includes(this.#next?.command);
  }

  #skipSpace() {
    while (this.#is(" ")) this.#at += 1;
  }

  take() {
    if (this.done) throw new Unknown();
    this.#at += 1;
    return this.#tokens[this.#at - 1];
  }

  /** Skip this token if it is next; returns whether it was. */
  skip(text) {
    this.#skipSpace();
    if (!this.#is(text)) return false;
    this.#at += 1;
    return true;
  }

  /** The nodes up to the end of the group, of a cell or of the formula. */
  row() {
    this.#depth += 1;
    if (this.#depth > DEEPEST) throw new Unknown();
    const nodes = [];
    for (;;) {
      this.#skipSpace();
      const ends = this.done || this.#is("}") || this.#is("&");
      if (ends || this.isCommand("right", "end", "\\", "middle", "cr")) break;
      const made = this.#scripted();
      if (made) nodes.push(made);
    }
    this.#depth -= 1;
    return nodes;
  }

  /** One atom with what stands above and below it. */
  #scripted() {
    const limits = this.#takesLimits();
    const base = this.#is("^") || this.#is("_") ? node("mrow") : this.#atom();
    let below = null;
    let above = null;
    for (;;) {
      if (this.skip("^")) above = row([...(above ? [above] : []), this.argument()]);
      else if (this.skip("_")) below = this.argument();
      else if (this.skip("'")) above = row([...(above ? [above] : []), node("mo", {}, "′")]);
      else break;
    }
    if (!base) return null;
    const [both, over, under] = limits
      ? ["munderover", "mover", "munder"]
      : ["msubsup", "msup", "msub"];
    if (below && above) return node(both, {}, base, below, above);
    if (above) return node(over, {}, base, above);
    return below ? node(under, {}, base, below) : base;
  }

  #takesLimits() {
    const name = this.#next?.command;
    if (name === "underbrace" || name === "overbrace") return true;
    if (!this.display || !name) return false;
    return (LARGE.has(name) && !name.endsWith("int")) || FUNCTIONS.has(`${name}*`);
  }

  /** A group in braces, or one atom. */
  argument() {
    this.#skipSpace();
    if (this.#is("{")) return this.#group();
    if (/^\d$/.test(this.#next?.text ?? "")) return node("mn", {}, this.take().text); // \frac12
    return this.#atom() ?? node("mrow");
  }

  #group() {
    this.take();
    const inner = this.row();
    if (!this.skip("}")) throw new Unknown();
    return row(inner);
  }

  /** The plain text of a group in braces. */
  words() {
    if (!this.skip("{")) throw new Unknown();
    let text = "";
    for (let depth = 1; ;) {
      const token = this.take();
      if (token.text === "{") depth += 1;
      if (token.text === "}") depth -= 1;
      if (depth === 0) return text;
      if (token.command !== undefined && token.command.length > 1) throw new Unknown();
      text += token.text ?? token.command;
    }
  }

  #atom() {
    if (this.#is("{")) return this.#group();
    const { text, command } = this.take();
    if (command !== undefined) return this.#command(command);
    if (/[\d.]/.test(text)) return node("mn", {}, text + this.#digits());
    if (/\p{L}/u.test(text)) return node("mi", {}, text);
    if (text === "~") return space(0.25);
    if (text === "}") throw new Unknown();
    return node(
      "mo",
      /[()[\]|]/.test(text) ? { stretchy: "false" } : {},
      text === "-" ? "−" : text,
    );
  }

  #digits() {
    let more = "";
    while (/^[\d.]$/.test(this.#next?.text ?? "")) more += this.take().text;
    return more;
  }

  #command(name) {
    if (LETTERS.has(name)) {
      const upright = /^[A-Z]/.test(name) || !/^\p{Ll}/u.test(LETTERS.get(name));
      return node("mi", upright ? { mathvariant: "normal" } : {}, LETTERS.get(name));
    }
    if (OPERATORS.has(name)) return node("mo", {}, OPERATORS.get(name));
    if (LARGE.has(name))
      return node("mo", { largeop: "true", movablelimits: "false" }, LARGE.get(name));
    if (FUNCTIONS.has(name) || FUNCTIONS.has(`${name}*`)) return node("mi", {}, named(name));
    if (SPACES.has(name)) return space(SPACES.get(name));
    if (IGNORED.has(name)) return null;
    if (TEXTS.has(name)) return this.#words(name);
    if (ALPHABETS[name]) return this.#restyled(ALPHABETS[name]);
    if (ACCENTS.has(name)) return this.#accent("mover", ACCENTS.get(name));
    if (UNDER.has(name)) return this.#accent("munder", UNDER.get(name));
    if (DELIMITERS.has(name)) return node("mo", { stretchy: "false" }, DELIMITERS.get(name));
    if (SIZES.test(name)) return node("mo", { stretchy: "false" }, this.#delimiter());
    return this.#construct(name);
  }

  #construct(name) {
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
      case "cfrac":
        return node("mfrac", {}, this.argument(), this.argument());
      case "binom":
      case "dbinom": {
        const inner = node("mfrac", { linethickness: "0" }, this.argument(), this.argument());
        return row([node("mo", {}, "("), inner, node("mo", {}, ")")]);
      }
      case "sqrt":
        return this.#root();
      case "left":
        return this.#fenced();
      case "begin":
        return this.#environment();
      case "overset":
      case "stackrel": {
        const above = this.argument();
        return node("mover", {}, this.argument(), above);
      }
      case "underset": {
        const below = this.argument();
        return node("munder", {}, this.argument(), below);
      }
      case "xrightarrow":
        return node("mover", {}, node("mo", { stretchy: "true" }, "→"), this.argument());
      case "not":
        return node("mo", {}, `${this.argument().textContent}\u0338`);
      case "boxed":
        return node("mrow", { class: "math-box" }, this.argument());
      case "pmod":
        return row([
          space(1),
          node("mo", {}, "("),
          node("mi", {}, "mod"),
          space(0.3),
          this.argument(),
          node("mo", {}, ")"),
        ]);
      case "bmod":
      case "mod":
        return node("mo", { lspace: "0.3em", rspace: "0.3em" }, "mod");
      case "tag":
      case "label":
        return name === "tag" ? node("mtext", {}, `  (${this.words()})`) : (this.words(), null);
      default:
        throw new Unknown();
    }
  }

  #words(name) {
    const text = this.words();
    if (name === "operatorname" || name === "mathrm")
      return node("mi", { mathvariant: "normal" }, text.trim());
    const kind = { textbf: "math-bold", textit: "math-italic" }[name];
    return node("mtext", { class: kind }, text.replace(/^ | $/g, "\u00a0"));
  }

  #restyled(alphabet) {
    const inner = this.argument();
    const leaves = inner.children.length ? inner.querySelectorAll("mi, mn") : [inner];
    for (const leaf of leaves) leaf.textContent = inAlphabet(leaf.textContent, alphabet);
    return inner;
  }

  #accent(tag, mark) {
    const stretchy = /[¯_⏞⏟→]/.test(mark) ? "true" : "false";
    return node(
      tag,
      { accent: "true", accentunder: "true" },
      this.argument(),
      node("mo", { stretchy }, mark),
    );
  }

  #root() {
    if (!this.skip("[")) return node("msqrt", {}, this.argument());
    const index = [];
    while (!this.#is("]")) index.push(this.#scripted() ?? node("mrow"));
    this.take();
    return node("mroot", {}, this.argument(), row(index));
  }

  #delimiter() {
    this.#skipSpace();
    const { text, command } = this.take();
    if (text === ".") return "";
    const found =
      DELIMITERS.get(command ?? text) ?? (command === undefined && /[<>]/.test(text) ? text : null);
    if (found === null) throw new Unknown();
    return { "<": "⟨", ">": "⟩" }[found] ?? (command === "|" ? "‖" : found);
  }

  #fenced() {
    const parts = [
      node("mo", { stretchy: "true", form: "prefix" }, this.#delimiter()),
      ...this.row(),
    ];
    while (this.isCommand("middle")) {
      this.take();
      parts.push(node("mo", { stretchy: "true" }, this.#delimiter()), ...this.row());
    }
    if (!this.isCommand("right")) throw new Unknown();
    this.take();
    parts.push(node("mo", { stretchy: "true", form: "postfix" }, this.#delimiter()));
    return row(parts);
  }

  #environment() {
    const name = this.words();
    const form = ENVIRONMENTS[name.replace("*", "")];
    if (!form) throw new Unknown();
    if (name === "array") this.words(); // how its columns are set
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(row(this.row()));
      if (this.skip("&")) continue;
      if (this.isCommand("\\", "cr")) {
        this.take();
        if (this.skip("[")) while (this.take().text !== "]"); // extra space between rows
        rows.push([]);
      } else break;
    }
    if (!this.isCommand("end")) throw new Unknown();
    this.take();
    if (this.words() !== name) throw new Unknown();
    if (rows.at(-1).length === 1 && !rows.at(-1)[0].childNodes.length) rows.pop();
    return tableNode(rows, form);
  }
}

const row = (nodes) => (nodes.length === 1 ? nodes[0] : node("mrow", {}, ...nodes));
const space = (em) => node("mspace", { width: `${em}em` });

/** The name of a function as it is printed. */
const named = (name) =>
  ({ limsup: "lim sup", liminf: "lim inf", argmax: "arg max", argmin: "arg min" })[name] ?? name;
