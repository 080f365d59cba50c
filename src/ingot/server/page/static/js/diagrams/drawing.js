// What all diagrams share: lines of text with their sizes, and arrow heads.

import { svgElement as svg } from "../dom.js";

export const LINE = 18; // pixels from one line of text to the next
const WIDE = 7.4; // pixels of an average character
const LONGEST = 26; // characters of a line

/** A text in lines: {lines, width, height}. Sizes are estimates, so that nothing is laid out twice. */
export function textBlock(text, longest = LONGEST) {
  const lines = text.split("\n").flatMap((line) => wrapped(line.trim(), longest));
  const width = Math.max(...lines.map(widthOf), 8);
  return { lines, width, height: lines.length * LINE };
}

function widthOf(line) {
  return [...line].reduce((sum, letter) => sum + (letter > "\u2e80" ? 14 : WIDE), 0);
}

function wrapped(text, longest) {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    const line = lines.at(-1);
    if (line && line.length + word.length >= longest) lines.push(word);
    else lines[lines.length - 1] = line ? `${line} ${word}` : word;
  }
  return lines;
}

/** The text, centred on a point, or beginning there with `anchor` "start". */
export function textNode({ lines }, x, y, { kind = "diagram-text", anchor = "middle" } = {}) {
  const first = y - ((lines.length - 1) * LINE) / 2;
  return svg(
    "text",
    { class: kind, "text-anchor": anchor, "dominant-baseline": "central" },
    ...lines.map((line, index) => svg("tspan", { x, y: first + index * LINE }, line)),
  );
}

/** A head of an arrow that ends at a point; `angle` is its direction. */
export function arrowHead(x, y, angle) {
  const side = (turn) =>
    `${(x - 9 * Math.cos(angle + turn)).toFixed(1)},${(y - 9 * Math.sin(angle + turn)).toFixed(1)}`;
  return svg("polygon", {
    class: "diagram-head",
    points: `${x},${y} ${side(0.42)} ${side(-0.42)}`,
  });
}

/** The whole picture. */
export function picture(width, height, label, parts) {
  const box = `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`;
  return svg(
    "svg",
    {
      class: "diagram",
      viewBox: box,
      width: Math.ceil(width),
      height: Math.ceil(height),
      role: "img",
      "aria-label": label,
    },
    ...parts,
  );
}
