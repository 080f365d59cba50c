"""All cases."""

from ops import attention, experts, heads, linear, recurrent, rows, streams
from ops.case import Case

TABLE: list[Case] = [
    *rows.CASES,
    *linear.CASES,
    *attention.CASES,
    *heads.CASES,
    *experts.CASES,
    *recurrent.CASES,
    *streams.CASES,
]
