"""A network as data: values, operations, their order and their place in memory."""

from ingot.graph.graph import ComputationGraph
from ingot.graph.memory_plan import MemoryPlan
from ingot.graph.ops import KvLayer

__all__ = ["ComputationGraph", "KvLayer", "MemoryPlan"]
