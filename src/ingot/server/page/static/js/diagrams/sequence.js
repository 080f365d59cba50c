// Mermaid's sequence diagrams as pictures: the source comes in, an SVG goes out, or null for what
// this file does not know.

import { svgElement as svg } from "../dom.js";
import { arrowHead, picture, textBlock, textNode } from "./drawing.js";

const NAME = "[\\p{L}\\p{N}_][\\p{L}\\p{N}_ .-]*?";
const PARTICIPANT = /^(?:create[ \t]+)?(?:participant|actor)[ \t]+(.+?)(?:[ \t]+as[ \t]+(.+))?$/;
const MESSAGE = new RegExp(
  `^(${NAME})[ \\t]*(<<)?(--?)(>>|>|x|\\))[ \\t]*[+-]?(${NAME})[ \\t]*:[ \\t]*(.*)$`,
  "u",
);
const NOTE = new RegExp(
  `^note[ \\t]+(left of|right of|over)[ \\t]+(${NAME})(?:,[ \\t]*(${NAME}))?[ \\t]*:[ \\t]*(.*)$`,
  "iu",
);
const FRAME = /^(loop|alt|opt|par|critical|break|rect)\b[ \t]*(.*)$/;
const DIVIDER = /^(else|and|option)\b[ \t]*(.*)$/;
const SILENT = /^(?:activate|deactivate|autonumber|destroy|title|box|%%)|^%%/;
const EDGE = 12; // pixels around the picture
const GAP = 40; // pixels between the texts of two participants, at least
const MOST = 300; // rows

/** The picture of a sequence diagram, or null. */
export function sequence(source) {
  const script = parse(source);
  return script && draw(script);
}

function parse(source) {
  const [head, ...lines] = source.trim().split("\n");
  if (!/^sequenceDiagram[ \t]*$/.test(head)) return null;
  const people = new Map(); // names by id
  const rows = [];
  const known = (id) => {
    if (!people.has(id)) people.set(id, id);
    return id;
  };
  let open = 0;
  for (const line of lines.map((text) => text.trim().replace(/;$/, ""))) {
    let match;
    if (!line || SILENT.test(line)) continue;
    if ((match = PARTICIPANT.exec(line))) people.set(match[1], plain(match[2] ?? match[1]));
    else if ((match = NOTE.exec(line))) {
      const [, side, first, last, text] = match;
      rows.push({
        kind: "note",
        side: side.toLowerCase(),
        from: known(first),
        to: known(last ?? first),
        text: plain(text),
      });
    } else if ((match = FRAME.exec(line))) {
      open += 1;
      rows.push({ kind: "open", name: match[1], text: plain(match[2]) });
    } else if (open && (match = DIVIDER.exec(line)))
      rows.push({ kind: "divide", text: plain(match[2]) });
    else if (open && line === "end") {
      open -= 1;
      rows.push({ kind: "close" });
    } else if ((match = MESSAGE.exec(line))) {
      const [, from, , dashes, tip, to, text] = match;
      rows.push({
        kind: "message",
        from: known(from),
        to: known(to),
        text: plain(text),
        dotted: dashes === "--",
        tip,
      });
    } else return null;
  }
  return open || !people.size || rows.length > MOST ? null : { people, rows };
}

const plain = (text) =>
  text
    .replace(/<br\s*\/?>/gi, "\n")
    .replace(/#59;/g, ";")
    .trim();

function draw({ people, rows }) {
  const ids = [...people.keys()];
  const heads = new Map(ids.map((id) => [id, textBlock(people.get(id), 18)]));
  const x = columns(ids, heads, rows);
  const top = Math.max(...[...heads.values()].map(({ height }) => height)) + 18;
  const right = Math.max(...x.values()) + Math.max(60, heads.get(ids.at(-1)).width / 2 + 14);
  const parts = [];
  const frames = [];
  let [y, width] = [EDGE + top + 10, right];
  for (const row of rows) {
    if (row.kind === "message") {
      const text = textBlock(row.text, 40);
      y += text.height + 12;
      const end = row.from === row.to ? selfMessage(row, x, y) : message(row, x, y);
      const middle =
        row.from === row.to ? x.get(row.from) + 10 : (x.get(row.from) + x.get(row.to)) / 2;
      const anchor = row.from === row.to ? "start" : "middle";
      parts.push(...end, textNode(text, middle, y - text.height / 2 - 5, { anchor }));
      if (row.from === row.to) width = Math.max(width, middle + text.width + 10);
      y += row.from === row.to ? 26 : 6;
    } else if (row.kind === "note") {
      const made = note(row, x, y + 8);
      parts.push(made.node);
      width = Math.max(width, made.right + 8);
      y += made.height + 12;
    } else if (row.kind === "open") {
      frames.push({ ...row, top: y + 8, depth: frames.length });
      y += 34;
    } else if (row.kind === "divide") {
      y += 10;
      frames.at(-1).dividers = [...(frames.at(-1).dividers ?? []), { y, text: row.text }];
      y += 22;
    } else {
      y += 10;
      parts.unshift(...frame(frames.pop(), y, right));
    }
  }
  y += 20;
  const lines = ids.map((id) =>
    svg("line", { class: "diagram-life", x1: x.get(id), x2: x.get(id), y1: EDGE + top, y2: y }),
  );
  const boxes = ids.map((id) => head(heads.get(id), x.get(id), EDGE, top));
  const label = `Sequence diagram: ${[...people.values()].join(", ")}`;
  return picture(width + EDGE, y + EDGE, label, [...lines, ...boxes, ...parts]);
}

/** The middle of every participant: far enough from the one before for the texts between them. */
function columns(ids, heads, rows) {
  const x = new Map();
  ids.forEach((id, index) => {
    const half = heads.get(id).width / 2 + 14;
    if (index === 0) return x.set(id, EDGE + Math.max(half, 50));
    const before = ids[index - 1];
    const texts = rows
      .filter(
        ({ kind, from, to }) =>
          kind === "message" && [from, to].includes(id) && [from, to].includes(before),
      )
      .map(({ text }) => textBlock(text, 40).width + 30);
    const apart = Math.max(heads.get(before).width / 2 + 14 + half + GAP / 2, 110, ...texts);
    x.set(id, x.get(before) + apart);
  });
  return x;
}

function head(text, x, top, height) {
  const width = text.width + 28;
  return svg(
    "g",
    { class: "diagram-node" },
    svg("rect", { x: x - width / 2, y: top, width, height, rx: 5 }),
    textNode(text, x, top + height / 2),
  );
}

const lineKind = ({ dotted }) => `diagram-line diagram-${dotted ? "dotted" : "solid"}`;

function message(row, x, y) {
  const [from, to] = [x.get(row.from), x.get(row.to)];
  const angle = to > from ? 0 : Math.PI;
  const line = svg("line", { class: lineKind(row), x1: from, y1: y, x2: to, y2: y });
  if (row.tip === "x") {
    const cross = `M${to - 5},${y - 5}l10,10M${to - 5},${y + 5}l10,-10`;
    return [line, svg("path", { class: "diagram-line", d: cross })];
  }
  return row.tip === ">" ? [line] : [line, arrowHead(to, y, angle)];
}

function selfMessage(row, x, y) {
  const at = x.get(row.from);
  const path = svg("path", { class: lineKind(row), d: `M${at},${y}h34v18h-34` });
  return [path, arrowHead(at, y + 18, Math.PI)];
}

function note({ side, from, to, text }, x, y) {
  const block = textBlock(text, 30);
  const [width, height] = [
    Math.max(block.width + 20, Math.abs(x.get(to) - x.get(from)) + 40),
    block.height + 14,
  ];
  const middle = (x.get(from) + x.get(to)) / 2;
  const left =
    { "left of": x.get(from) - width - 10, "right of": x.get(from) + 10 }[side] ??
    middle - width / 2;
  const box = svg("rect", { x: Math.max(2, left), y, width, height, rx: 3 });
  const words = textNode(block, Math.max(2, left) + width / 2, y + height / 2);
  return {
    node: svg("g", { class: "diagram-note" }, box, words),
    height,
    right: Math.max(2, left) + width,
  };
}

function frame({ name, text, top, depth, dividers = [] }, bottom, right) {
  const left = 4 + 6 * depth;
  const start = { anchor: "start", kind: "diagram-small" };
  return [
    svg("rect", {
      class: "diagram-frame",
      x: left,
      y: top,
      width: right - 2 * left,
      height: bottom - top,
      rx: 4,
    }),
    textNode(
      { lines: [text && name !== "rect" ? `${name}: ${text}` : name] },
      left + 8,
      top + 13,
      start,
    ),
    ...dividers.flatMap(({ y, text: said }) => [
      svg("line", { class: "diagram-divider", x1: left, x2: right - left, y1: y, y2: y }),
      textNode({ lines: [said] }, left + 8, y + 13, start),
    ]),
  ];
}
