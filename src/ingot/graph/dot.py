"""A drawing of a graph in Graphviz's language: `dot -Tsvg graph.dot > graph.svg`."""

from ingot.graph.drawing import Drawing
from ingot.graph.listing import ListedOp


def to_dot(drawing: Drawing, title: str) -> str:
    """The text of a .dot file."""
    lines = [
        "digraph graph_of_a_model {",
        f"  label={_quoted(title)}; labelloc=t; fontname=monospace;",
        "  node [shape=box, style=rounded, fontname=monospace, fontsize=10];",
        "  edge [fontname=monospace, fontsize=9];",
    ]
    for number, section in enumerate(drawing.sections):
        nodes = [f"n{box} [label={_label(drawing.boxes[box])}];" for box in section.boxes]
        if section.title:
            lines.append(f"  subgraph cluster_{number} {{")
            lines.append(f"    label={_quoted(section.title)}; labeljust=l;")
            lines += (f"    {node}" for node in nodes)
            lines.append("  }")
        else:
            lines += (f"  {node}" for node in nodes)
    for arrow in drawing.arrows:
        if arrow.value is None:
            look = 'label="cache", style=dashed'
        else:
            look = f"label={_quoted(f'{arrow.value.bytes} B')}"
        lines.append(f"  n{arrow.source} -> n{arrow.target} [{look}];")
    return "\n".join([*lines, "}", ""])


def _label(op: ListedOp) -> str:
    """What a box says, every line aligned to the left."""
    lines = [", ".join((op.kind, *op.remarks))]
    lines += (f"{weight.name} {' x '.join(map(str, weight.shape))}" for weight in op.weights)
    lines += (f"-> {value.name}, {value.bytes} B" for value in op.writes)
    return '"' + "".join(_escaped(line) + r"\l" for line in lines) + '"'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
