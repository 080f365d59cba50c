"""All cases."""

from ops import attention, experts, linear, recurrent, rows
from ops.case import Case

TABLE: list[Case] = [
    *rows.CASES,
    *linear.CASES,
    *attention.CASES,
    *experts.CASES,
    *recurrent.CASES,
]
