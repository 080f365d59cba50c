"""A drawing of a graph as SVG, without any other program. Hovering over an arrow names its values.

Text is monospace, so that its width is known before it is drawn.
"""

from html import escape
from itertools import pairwise

from ingot.graph.drawing import Drawing
from ingot.graph.listing import ListedOp
from ingot.graph.svg_layout import Place, Point, Route, lay_out

_CHARACTER = 6.7  # an advance of monospace at 11 pixels, rounded up
_LINE = 15
_PADDING = 8
_TOP = 44  # below the title
_CORNER = 5
_STYLE = """
text { font: 11px monospace; fill: #1a1a1a; white-space: pre }
text.title { font-size: 14px; font-weight: bold }
.kind, .section { font-weight: bold }
.weight { fill: #555 }
.box { stroke: #666 }
.frame { fill: #fafafa; stroke: #999; stroke-dasharray: 6 4 }
.arrow { fill: none; stroke: #444; marker-end: url(#tip) }
.cache { stroke: #2e7d32; stroke-dasharray: 4 3 }
"""
_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>'
)


def to_svg(drawing: Drawing, title: str) -> str:
    """The text of an .svg file."""
    texts = [_lines(op) for op in drawing.boxes]
    sizes = [
        (
            max(len(line) for _, line in text) * _CHARACTER + 2 * _PADDING,
            float(len(text) * _LINE + _PADDING),
        )
        for text in texts
    ]
    layout = lay_out(drawing, sizes, _TOP)
    width = max(layout.width, len(title) * 9 + 48)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
            f'height="{layout.height:.0f}" viewBox="0 0 {width:.0f} {layout.height:.0f}">',
            f"<style>{_STYLE}</style>",
            _TIP,
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text class="title" x="24" y="28">{escape(title)}</text>',
            *(_frame(name, place) for name, place in layout.frames),
            *(_arrow(route) for route in layout.routes),
            *(
                _box(op, place, text)
                for op, place, text in zip(drawing.boxes, layout.boxes, texts, strict=True)
            ),
            "</svg>",
            "",
        ]
    )


def _lines(op: ListedOp) -> list[tuple[str, str]]:
    """What a box says: a class of text and the text."""
    kind = ", ".join((op.kind, *op.remarks))
    weights = (f"{w.name}  {' x '.join(map(str, w.shape))}" for w in op.weights)
    writes = (f"→ {value.name}  {value.bytes} B" for value in op.writes)
    return [
        ("kind", kind),
        *(("weight", line) for line in weights),
        *(("value", line) for line in writes),
    ]


def _frame(name: str, place: Place) -> str:
    return (
        f'<rect class="frame" {_rectangle(place)} rx="8"/>'
        f'<text class="section" x="{place.x + 10:.1f}" y="{place.y + 16:.1f}">{escape(name)}</text>'
    )


def _box(op: ListedOp, place: Place, lines: list[tuple[str, str]]) -> str:
    text = "".join(
        f'<text class="{kind}" x="{place.x + _PADDING:.1f}" '
        f'y="{place.y + _LINE * number:.1f}">{escape(line)}</text>'
        for number, (kind, line) in enumerate(lines, 1)
    )
    return f'<g><rect class="box" {_rectangle(place)} rx="4" fill="{op.colour}"/>{text}</g>'


def _rectangle(place: Place) -> str:
    return (
        f'x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" height="{place.height:.1f}"'
    )


def _arrow(route: Route) -> str:
    values = [arrow.value for arrow in route.arrows]
    says = ", ".join(f"{v.name} ({v.bytes} B per token)" if v else "the cache" for v in values)
    look = "arrow cache" if None in values else "arrow"
    return f'<path class="{look}" d="{_path(route.points)}"><title>{escape(says)}</title></path>'


def _path(points: tuple[Point, ...]) -> str:
    """A curve between two points; between more, straight lines with round corners."""
    (x0, y0), (x1, y1) = points[0], points[-1]
    if len(points) == 2:
        middle = (y0 + y1) / 2
        return f"M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    path = f"M{x0:.1f} {y0:.1f}"
    for (before, corner), (_, after) in zip(pairwise(points), pairwise(points[1:]), strict=False):
        (ax, ay), (bx, by) = _towards(corner, before), _towards(corner, after)
        path += f"L{ax:.1f} {ay:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {bx:.1f} {by:.1f}"
    return path + f"L{x1:.1f} {y1:.1f}"


def _towards(start: Point, end: Point) -> Point:
    """The point a corner's radius from `start` (or half the way, if that is less)."""
    length = max(abs(end[0] - start[0]), abs(end[1] - start[1]))
    share = min(_CORNER / length, 0.5) if length else 0.0
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share
