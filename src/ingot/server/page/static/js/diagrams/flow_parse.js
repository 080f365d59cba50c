// Mermaid's flowcharts as data: the source comes in; direction, nodes and edges go out, or null for
// what this file does not know (subgraphs, for example).

const HEAD = /^(?:graph|flowchart)(?:-elk)?[ \t]+(TB|TD|BT|LR|RL)\b[ \t]*;?/;
const ID = /^[\p{L}\p{N}_]+(?:[-.][\p{L}\p{N}_]+)*/u;
// The brackets of each shape, the longest first.
const SHAPES = [
  ["(((", ")))", "circle"],
  ["((", "))", "circle"],
  ["([", "])", "stadium"],
  ["[[", "]]", "rectangle"],
  ["[(", ")]", "stadium"],
  ["{{", "}}", "hexagon"],
  ["[/", "/]", "rectangle"],
  ["[\\", "\\]", "rectangle"],
  ["{", "}", "diamond"],
  ["(", ")", "round"],
  ["[", "]", "rectangle"],
  [">", "]", "rectangle"],
];
const LABELLED =
  /^(--|==|-\.)[ \t]+([^\n|>]+?)[ \t]*(-{2,}[>ox]?|={2,}[>ox]?|\.-+[>ox]?)(?=[^-=.]|$)/;
const PLAIN = /^[<ox]?(-{2,}|={2,}|-\.+-)([>ox]?)/;
const STYLING = /^(?:style|classDef|class|linkStyle|click|%%|accTitle|accDescr|direction)\b|^%%/;
const MOST = 200; // nodes

/** {direction, nodes: [{id, text, shape}], edges: [{from, to, text, line, arrow}]} or null. */
export function parseFlow(source) {
  const head = HEAD.exec(source.trim());
  if (!head) return null;
  const chart = new Chart();
  const statements = source.trim().slice(head[0].length).split(/[\n;]/);
  for (const statement of statements.map((line) => line.trim())) {
    if (!statement || STYLING.test(statement)) continue;
    if (!chart.read(statement)) return null;
  }
  if (!chart.nodes.size || chart.nodes.size > MOST) return null;
  return {
    direction: head[1] === "TD" ? "TB" : head[1],
    nodes: [...chart.nodes.values()],
    edges: chart.edges,
  };
}

class Chart {
  nodes = new Map();
  edges = [];
  #rest = "";

  /** Read one statement: nodes, and edges between them. False if it is not understood. */
  read(statement) {
    this.#rest = statement;
    let from = this.#group();
    if (!from) return false;
    while (this.#rest) {
      const edge = this.#edge();
      const to = edge && this.#group();
      if (!to) return false;
      for (const one of from)
        for (const other of to) this.edges.push({ from: one, to: other, ...edge });
      from = to;
    }
    return true;
  }

  /** Nodes joined by "&". */
  #group() {
    const ids = [];
    do {
      const id = this.#node();
      if (!id) return null;
      ids.push(id);
    } while (this.#skip(/^[ \t]*&[ \t]*/));
    this.#skip(/^[ \t]+/);
    return ids;
  }

  #node() {
    const id = this.#skip(ID);
    if (!id) return null;
    const known = this.nodes.get(id) ?? { id, text: id, shape: "rectangle" };
    this.nodes.set(id, known);
    const shape = SHAPES.find(([open]) => this.#rest.startsWith(open));
    if (shape) {
      const [open, close, name] = shape;
      const end = this.#closing(open.length, close);
      if (end < 0) return null;
      known.text = plain(this.#rest.slice(open.length, end));
      known.shape = name;
      this.#rest = this.#rest.slice(end + close.length);
    }
    this.#skip(/^:::[\w-]+/);
    return id;
  }

  /** Where a shape ends; quotes may hold its bracket. */
  #closing(from, close) {
    const quoted = /^\s*"[^"]*"\s*/.exec(this.#rest.slice(from));
    return this.#rest.indexOf(close, from + (quoted ? quoted[0].length : 0));
  }

  #edge() {
    const labelled = LABELLED.exec(this.#rest);
    const match = labelled ?? PLAIN.exec(this.#rest);
    if (!match) return null;
    this.#rest = this.#rest.slice(match[0].length);
    const drawn = match[1];
    const head = labelled ? match[3].at(-1) : match[2];
    let text = labelled ? plain(match[2]) : "";
    const bars = this.#skip(/^[ \t]*\|[^|]*\|/);
    if (bars) text = plain(bars.trim().slice(1, -1));
    this.#skip(/^[ \t]+/);
    const line = drawn.startsWith("=") ? "thick" : drawn.includes(".") ? "dotted" : "solid";
    return { text, line, arrow: /[>ox]/.test(head) };
  }

  #skip(pattern) {
    const match = pattern.exec(this.#rest);
    if (match) this.#rest = this.#rest.slice(match[0].length);
    return match?.[0] ?? null;
  }
}

/** A label without quotes and marks; breaks become lines. */
function plain(text) {
  return text
    .trim()
    .replace(/^"([^]*)"$/, "$1")
    .replace(/<br\s*\/?>|\\n/gi, "\n")
    .replace(/#quot;/g, '"')
    .replace(/\*\*|`/g, "")
    .trim();
}
