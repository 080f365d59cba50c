// Matrices, cases and aligned equations: rows of cells come in, a table of MathML goes out.

import { mathElement as node } from "../dom.js";

/** How each environment looks: its fences, and how its columns are aligned. */
export const ENVIRONMENTS = {
  matrix: {},
  smallmatrix: {},
  array: {},
  pmatrix: { open: "(", close: ")" },
  bmatrix: { open: "[", close: "]" },
  Bmatrix: { open: "{", close: "}" },
  vmatrix: { open: "|", close: "|" },
  Vmatrix: { open: "‖", close: "‖" },
  cases: { open: "{", columns: ["left", "left"] },
  aligned: { columns: ["right", "left"], wide: true },
  align: { columns: ["right", "left"], wide: true },
  split: { columns: ["right", "left"], wide: true },
  equation: { wide: true },
  gather: { wide: true },
  gathered: { wide: true },
};

export function tableNode(rows, { open, close, columns = ["center"], wide = false }) {
  const cell = (content, column) =>
    node("mtd", { class: `math-${columns[column % columns.length]}` }, content);
  const table = node(
    "mtable",
    wide ? { displaystyle: "true", class: "math-wide" } : {},
    ...rows.map((cells) => node("mtr", {}, ...cells.map(cell))),
  );
  if (!open) return table;
  const fence = (mark, form) => (mark ? [node("mo", { stretchy: "true", form }, mark)] : []);
  return node("mrow", {}, ...fence(open, "prefix"), table, ...fence(close, "postfix"));
}
