"""A network as data: values, operations, their order and their place in memory."""

from ingot.graph.graph import ComputationGraph, KvLayer
from ingot.graph.memory_plan import MemoryPlan

__all__ = ["ComputationGraph", "KvLayer", "MemoryPlan"]
