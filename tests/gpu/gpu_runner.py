"""The runner of batches, on the GPU backend."""

from typing import Any

import numpy as np
import torch

from ingot.backends.gpu import GpuBackend, GpuPlan, find_device
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout, block_count
from run_batches import Runner


class GpuRunner(Runner):
    """Sequences on the GPU, or in Triton's interpreter."""

    def make_backend(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        layout: KvLayout,
        *,
        blocks: int,
        states: int,
        context: int,
        threads: int,  # noqa: ARG002
        max_tokens: int,
    ) -> Any:
        sequences = min(max(64, blocks // block_count(context)), 1024) if graph.causal else 0
        plan = GpuPlan.of(
            graph,
            model,
            layout,
            find_device(),
            context=context,
            tokens=max_tokens,
            sequences=sequences,
        )
        return GpuBackend(plan, model, blocks=blocks, states=states)

    def spoil(self, memory: torch.Tensor) -> None:
        noise = np.random.default_rng(0).integers(0, 256, len(memory), np.uint8)
        memory.copy_(torch.from_numpy(noise))
