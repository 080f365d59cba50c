// Markdown's blocks. Text comes in; blocks go out, with the places where they begin and end:
//   heading, paragraph, code, math, rule, quote, list, table.
// What models write is read leniently: a fence may be open, nested lists may be indented by two.
// A block of HTML is a paragraph like any other; indented code and underlined headings are not
// supported, because in a stream they would change what is already shown.

const DEEPEST = 12; // quotes and lists within each other; deeper ones are paragraphs

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*))?$/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const MATH = /^ {0,3}(\$\$|\\\[)/;
const BLANK = /^[ \t]*$/;

/** The blocks of a text, in order. */
export function parseBlocks(text, depth = 0) {
  const reader = new Reader(text);
  const blocks = [];
  while (reader.skipBlank()) {
    const start = reader.offset;
    const block = readBlock(reader, depth);
    blocks.push({ ...block, start, end: reader.offset });
  }
  return blocks;
}

class Reader {
  #lines;
  #at = 0;
  offset = 0; // of the current line in the text

  constructor(text) {
    this.#lines = text.split("\n");
    if (this.#lines.at(-1) === "") this.#lines.pop();
  }

  get line() {
    return this.#lines[this.#at];
  }

  get next() {
    return this.#lines[this.#at + 1];
  }

  get done() {
    return this.#at >= this.#lines.length;
  }

  take() {
    const line = this.line;
    this.offset += line.length + 1;
    this.#at += 1;
    return line;
  }

  skipBlank() {
    while (!this.done && BLANK.test(this.line)) this.take();
    return !this.done;
  }
}

function readBlock(reader, depth) {
  const { line } = reader;
  if (FENCE.test(line)) return readCode(reader);
  if (MATH.test(line)) return readMath(reader);
  const heading = HEADING.exec(line);
  if (heading) {
    reader.take();
    const text = (heading[2] ?? "")
      .trim()
      .replace(/(?:^|[ \t])#+$/, "")
      .trimEnd();
    return { kind: "heading", level: heading[1].length, text };
  }
  if (RULE.test(line)) {
    reader.take();
    return { kind: "rule" };
  }
  if (depth < DEEPEST) {
    if (QUOTE.test(line)) return readQuote(reader, depth);
    if (ITEM.test(line)) return readList(reader, depth);
  }
  if (beginsTable(reader)) return readTable(reader);
  return readParagraph(reader);
}

function readCode(reader) {
  const [, fence, info] = FENCE.exec(reader.line);
  const indent = indentOf(reader.take());
  const close = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[ \\t]*$`);
  const lines = [];
  while (!reader.done) {
    const line = reader.take();
    if (close.test(line)) return code(info, lines, true);
    lines.push(dedent(line, indent));
  }
  return code(info, lines, false);
}

function code(info, lines, closed) {
  return { kind: "code", language: info.trim().split(/\s/, 1)[0], text: lines.join("\n"), closed };
}

/** A formula between $$ or \[ and \], which holds no blank line. Without its end it is text. */
function readMath(reader) {
  const [, mark] = MATH.exec(reader.line);
  const end = mark === "$$" ? "$$" : "\\]";
  const lines = [];
  while (!reader.done && !BLANK.test(reader.line)) {
    lines.push(reader.take());
    const text = lines.join("\n").trim();
    const close = text.indexOf(end, mark.length);
    if (close < 0) continue;
    if (close === text.length - end.length)
      return { kind: "math", text: text.slice(mark.length, close) };
    break; // text follows it: a paragraph with a formula in it
  }
  while (!reader.done && !BLANK.test(reader.line) && !begins(reader)) lines.push(reader.take());
  return paragraph(lines);
}

function readQuote(reader, depth) {
  const lines = [];
  while (!reader.done && (QUOTE.test(reader.line) || goesOn(reader, lines.at(-1)))) {
    lines.push(reader.take().replace(QUOTE, ""));
  }
  return { kind: "quote", blocks: parseBlocks(lines.join("\n"), depth + 1) };
}

/** Whether the current line is the rest of a paragraph that the line before belonged to. */
function goesOn(reader, before) {
  return before !== undefined && !BLANK.test(before) && !BLANK.test(reader.line) && !begins(reader);
}

function readList(reader, depth) {
  const [, , firstMarker] = ITEM.exec(reader.line);
  const ordered = /\d/.test(firstMarker);
  const items = [];
  let loose = false;
  while (!reader.done) {
    const match = ITEM.exec(reader.line);
    if (!match || RULE.test(reader.line) || /\d/.test(match[2]) !== ordered) break;
    const { lines, gap } = readItem(reader, match);
    items.push(parseBlocks(lines.join("\n"), depth + 1));
    if (gap && !reader.done && ITEM.test(reader.line)) loose = true;
  }
  return { kind: "list", ordered, first: ordered ? parseInt(firstMarker, 10) : 1, items, loose };
}

/** The lines of one item, without its indent. */
function readItem(reader, [, before, marker, space = " ", rest = ""]) {
  const inside = before.length + marker.length + Math.min(space.length, 4);
  const lines = [rest];
  reader.take();
  let gap = false;
  while (!reader.done) {
    const { line } = reader;
    if (BLANK.test(line)) {
      gap = true;
      lines.push("");
      reader.take();
    } else if (indentOf(line) >= Math.min(inside, 2 + before.length)) {
      gap = false;
      lines.push(dedent(line, inside));
      reader.take();
    } else if (!gap && !ITEM.test(line) && goesOn(reader, lines.at(-1))) {
      lines.push(reader.take());
    } else break;
  }
  return { lines, gap };
}

function beginsTable(reader) {
  const { line, next } = reader;
  if (!line.includes("|") || next === undefined || !DIVIDER.test(next)) return false;
  return cellsOf(line).length === cellsOf(next).length;
}

function readTable(reader) {
  const head = cellsOf(reader.take());
  const align = cellsOf(reader.take()).map((cell) => {
    if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
    return null;
  });
  const rows = [];
  while (!reader.done && !BLANK.test(reader.line) && reader.line.includes("|")) {
    const cells = cellsOf(reader.take());
    rows.push(head.map((_, column) => cells[column] ?? ""));
  }
  return { kind: "table", head, align, rows };
}

/** The cells of a row: bars split, but not after a backslash or within code. */
function cellsOf(line) {
  const inner = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  const cells = inner.match(/(?:`[^`]*`|\\.|[^|])+|(?<=\|)(?=\|)/g) ?? [""];
  return cells.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function readParagraph(reader) {
  const lines = [reader.take()];
  while (!reader.done && !BLANK.test(reader.line) && !begins(reader)) lines.push(reader.take());
  return paragraph(lines);
}

function paragraph(lines) {
  return { kind: "paragraph", text: lines.map((line) => line.replace(/^[ \t]+/, "")).join("\n") };
}

/** Whether the current line ends a paragraph before it. A list that starts at 7 does not. */
function begins(reader) {
  const { line } = reader;
  if (
    FENCE.test(line) ||
    MATH.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line)
  )
    return true;
  const item = ITEM.exec(line);
  if (item?.[4] && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1)) return true;
  return beginsTable(reader);
}

function indentOf(line) {
  return /^[ ]*/.exec(line.replaceAll("\t", "    "))[0].length;
}

function dedent(line, columns) {
  const spaced = line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
  return spaced.slice(Math.min(columns, indentOf(spaced)));
}
