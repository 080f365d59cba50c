"""All cases."""

from ops import attention, expanded, experts, heads, indexed, linear, recurrent, rows, streams
from ops.case import Case

TABLE: list[Case] = [
    *rows.CASES,
    *linear.CASES,
    *attention.CASES,
    *expanded.CASES,
    *indexed.CASES,
    *heads.CASES,
    *experts.CASES,
    *recurrent.CASES,
    *streams.CASES,
]
