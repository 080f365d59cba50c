"""The vocabulary of a network: values, weights and the operations between them.

A value is a float32 matrix [tokens, width]; the number of tokens is its only free
dimension. A weight is a tensor of the file, by the file's own name. An operation is one frozen
dataclass. Its fields name what it reads, writes and keeps; its docstring says what it computes;
its methods say what must fit, what it is fused with and how a listing describes it. Nothing here
knows a backend, an architecture or a tensor's bytes.

Families of operations: `rows`, `linear`, `attention`, `experts`, `recurrent`, `streams`. Each names
its operations in `__all__`; this package re-exports them all.
"""

from ingot.graph.ops.attention import *
from ingot.graph.ops.experts import *
from ingot.graph.ops.linear import *
from ingot.graph.ops.record import *
from ingot.graph.ops.recurrent import *
from ingot.graph.ops.rows import *
from ingot.graph.ops.streams import *
