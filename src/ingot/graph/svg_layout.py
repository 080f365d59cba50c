"""Where the parts of a drawing stand: rows from top to bottom, each box below all it reads.

A `Drawing` and the size of every box come in, coordinates go out. An arrow to the next row goes
straight; one that passes rows leaves through the gap below its row into a lane on the right and
comes back through the gap above its target's row. No two of them share a stretch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.graph.drawing import Arrow, Drawing

_MARGIN = 24.0
_BETWEEN = 24.0  # boxes of a row
_GAP = 30.0  # rows
_TRACK = 7.0  # arrows side by side in a gap or in lanes
_HEADING = 24.0  # above the first row of a section that has a title
_PADDING = 14.0

Size = tuple[float, float]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """All arrows between two boxes: two points, or more where it turns."""

    arrows: tuple[Arrow, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """`boxes` in the order of the drawing; `frames` with the sections' titles."""

    boxes: tuple[Place, ...]
    routes: tuple[Route, ...]
    frames: tuple[tuple[str, Place], ...]
    width: float
    height: float


def lay_out(drawing: Drawing, sizes: Sequence[Size], top: float) -> Layout:
    """Find a place for everything, below `top`."""
    bundles: dict[tuple[int, int], list[Arrow]] = {}
    for arrow in drawing.arrows:
        bundles.setdefault((arrow.source, arrow.target), []).append(arrow)
    rows = _rows(drawing, list(bundles))
    row_of = {box: number for number, row in enumerate(rows) for box in row}
    detours = [pair for pair in bundles if row_of[pair[1]] - row_of[pair[0]] > 1]
    lanes = _lanes(detours, row_of)
    tracks = _tracks(detours, row_of)
    widest = max(_row_width(row, sizes) for row in rows)
    boxes = _places(drawing, rows, sizes, tracks, widest, top)
    right = _MARGIN + _PADDING + widest
    ports = _ports(list(bundles), detours, boxes)
    routes = []
    for pair, arrows in bundles.items():
        points: tuple[Point, ...] = ports[pair]
        if pair in lanes:
            (x0, y0), (x1, y1) = ports[pair]
            lane = right + _TRACK * (lanes[pair] + 2)
            leave, arrive = (
                _gap_top(rows[gap], boxes) + _TRACK * (tracks[gap].index(pair) + 1)
                for gap in (row_of[pair[0]], row_of[pair[1]] - 1)
            )
            corners = [(x0, leave), (lane, leave), (lane, arrive), (x1, arrive)]
            points = (x0, y0), *corners, (x1, y1)
        routes.append(Route(tuple(arrows), points))
    edge = right + _TRACK * (max(lanes.values(), default=-1) + 3)
    frames = tuple(
        (
            section.title,
            _frame([boxes[box] for box in section.boxes], edge + _PADDING - _MARGIN),
        )
        for section in drawing.sections
        if section.title
    )
    bottom = max(place.y + place.height for place in (*boxes, *(frame for _, frame in frames)))
    return Layout(boxes, tuple(routes), frames, edge + _PADDING + _MARGIN, bottom + _MARGIN)


def _rows(drawing: Drawing, pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Boxes by row: below every box they read from, and below all sections before theirs."""
    row_of: dict[int, int] = {}
    start = 0
    for section in drawing.sections:
        for box in section.boxes:
            before = [row_of[source] for source, target in pairs if target == box]
            row_of[box] = max([start, *(row + 1 for row in before)])
        start = max(row_of.values()) + 1
    return [[box for box, row in row_of.items() if row == number] for number in range(start)]


def _lanes(detours: list[tuple[int, int]], row_of: dict[int, int]) -> dict[tuple[int, int], int]:
    """A lane for every detour, the lowest that no other one uses beside the same gap."""
    lanes: dict[tuple[int, int], int] = {}
    for pair in sorted(detours, key=lambda pair: row_of[pair[1]] - row_of[pair[0]]):
        taken = {
            lane
            for (source, target), lane in lanes.items()
            if row_of[source] < row_of[pair[1]] and row_of[pair[0]] < row_of[target]
        }
        lanes[pair] = next(lane for lane in range(len(detours)) if lane not in taken)
    return lanes


def _tracks(
    detours: list[tuple[int, int]], row_of: dict[int, int]
) -> dict[int, list[tuple[int, int]]]:
    """The detours that leave or arrive in each gap (the one below the row of that number)."""
    tracks: dict[int, list[tuple[int, int]]] = {}
    for pair in detours:
        tracks.setdefault(row_of[pair[0]], []).append(pair)
        tracks.setdefault(row_of[pair[1]] - 1, []).append(pair)
    return tracks


def _row_width(row: list[int], sizes: Sequence[Size]) -> float:
    return sum(sizes[box][0] for box in row) + _BETWEEN * (len(row) - 1)


def _places(
    drawing: Drawing,
    rows: list[list[int]],
    sizes: Sequence[Size],
    tracks: dict[int, list[tuple[int, int]]],
    widest: float,
    top: float,
) -> tuple[Place, ...]:
    titled = {section.boxes[0]: section for section in drawing.sections if section.title}
    last = {section.boxes[-1] for section in titled.values()}
    places: dict[int, Place] = {}
    y = top
    for number, row in enumerate(rows):
        if any(box in titled for box in row):
            y += _HEADING
        x = _MARGIN + _PADDING + (widest - _row_width(row, sizes)) / 2
        for box in row:
            places[box] = Place(x, y, *sizes[box])
            x += sizes[box][0] + _BETWEEN
        y += max(sizes[box][1] for box in row) + _GAP + _TRACK * len(tracks.get(number, ()))
        if any(box in last for box in row):
            y += _PADDING
    return tuple(places[box] for box in range(len(drawing.boxes)))


def _gap_top(row: list[int], boxes: Sequence[Place]) -> float:
    return max(boxes[box].y + boxes[box].height for box in row)


def _ports(
    pairs: list[tuple[int, int]], detours: list[tuple[int, int]], boxes: Sequence[Place]
) -> dict[tuple[int, int], tuple[Point, Point]]:
    """Where arrows leave and enter: spread along the box, detours on the right."""

    def spread(end: int, box: int) -> dict[tuple[int, int], float]:
        here = [pair for pair in pairs if pair[end] == box]
        here.sort(key=lambda pair: (pair in detours, boxes[pair[1 - end]].x, pair))
        step = boxes[box].width / (len(here) + 1)
        return {pair: boxes[box].x + step * number for number, pair in enumerate(here, 1)}

    leaving: dict[tuple[int, int], float] = {}
    entering: dict[tuple[int, int], float] = {}
    for box in range(len(boxes)):
        leaving |= spread(0, box)
        entering |= spread(1, box)
    return {
        (source, target): (
            (leaving[source, target], boxes[source].y + boxes[source].height),
            (entering[source, target], boxes[target].y),
        )
        for source, target in pairs
    }


def _frame(boxes: list[Place], width: float) -> Place:
    top = min(box.y for box in boxes) - _HEADING
    bottom = max(box.y + box.height for box in boxes) + _PADDING
    return Place(_MARGIN, top, width, bottom - top)
