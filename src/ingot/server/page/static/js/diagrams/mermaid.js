// Mermaid diagrams: a source comes in, a picture goes out, or null if the page cannot draw it.

import { flowchart } from "./flow.js";
import { sequence } from "./sequence.js";

const LONGEST = 20_000; // characters

export function diagramOf(source) {
  if (source.length > LONGEST) return null;
  return flowchart(source) ?? sequence(source);
}
