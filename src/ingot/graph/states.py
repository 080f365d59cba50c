"""What recurrent operations keep of a sequence between its tokens: sizes and layout only.

A state is a run of floats, laid out for the kernels: channels in lanes of sixteen.

    CausalConv  [taps - 1][channels]: the last rows of its source, oldest first
    StateScan   [groups][lanes of a group][states][16]: channels of a group, padded to whole lanes
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ingot.graph.ops import CausalConv, Op, StateScan

LANES = 16


def state_sizes(ops: Iterable[Op]) -> tuple[int, ...]:
    """The floats of every state of a graph, by its number."""
    sizes = {op.state: state_floats(op) for op in ops if isinstance(op, CausalConv | StateScan)}
    return tuple(sizes[number] for number in range(len(sizes)))


def group_lanes(scan: StateScan) -> int:
    """Vectors of channels that a group takes."""
    return -(-scan.x.width // (scan.groups * LANES))


def state_floats(op: CausalConv | StateScan) -> int:
    """Elements that an operation keeps for one sequence."""
    if isinstance(op, CausalConv):
        return op.source.width * (op.weight.shape[1] - 1)
    return op.groups * group_lanes(op) * op.states * LANES


def in_lanes(scan: StateScan, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of the heads [heads, n] for every channel: [groups, lanes of a group, n, 16]."""
    channels = rows.reshape(scan.heads, -1).repeat(scan.x.width // scan.heads, axis=0)
    grouped = channels.reshape(scan.groups, -1, channels.shape[1])
    missing = group_lanes(scan) * LANES - grouped.shape[1]
    padded = np.pad(grouped, ((0, 0), (0, missing), (0, 0)))
    lanes = padded.reshape(scan.groups, -1, LANES, channels.shape[1])
    return np.ascontiguousarray(lanes.swapaxes(2, 3))
