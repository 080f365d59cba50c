"""Where a model runs: its backend, on the CPU or a GPU, and how large its cache becomes there."""

from ingot.backends.backend import Backend, choose_device
from ingot.backends.cpu import CpuBackend
from ingot.engine import memory
from ingot.errors import IngotError, MemoryShortageError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout

_CONTEXTS, _MEMORY_SHARE = 4, 4
STEP_TOKENS = 512  # of a prompt; an encoder takes a whole text at once
GPU_STEP_TOKENS = 4096  # fill it, and unpack every matrix once for all of them


class Placed:
    """A backend and the number of blocks of its cache."""

    def __init__(
        self,
        graph: ComputationGraph,
        file: GgufLoader,
        layout: KvLayout,
        *,
        context: int,
        cache_tokens: int | None,
        threads: int,
        device: str,
    ) -> None:
        """`device` "auto" runs on the CPU what there is no GPU for, or what no GPU can run."""
        self._graph, self._file, self._layout = graph, file, layout
        self._context, self._cache_tokens, self._threads = context, cache_tokens, threads
        self.on_gpu = False
        gpu = choose_device(device)
        if gpu is not None:
            from ingot.backends.gpu import GpuBackend  # noqa: PLC0415 (PyTorch, if asked for)

            try:
                self.blocks = self._cache_blocks(gpu.free_memory())
                self.backend: Backend = GpuBackend(
                    graph,
                    file,
                    layout,
                    blocks=self.blocks,
                    context=context,
                    device=gpu,
                    max_tokens=min(GPU_STEP_TOKENS, -(-context // BLOCK_TOKENS) * BLOCK_TOKENS),
                )
            except (MemoryShortageError, ModelError):
                if device != "auto":
                    raise
            else:
                self.on_gpu = True
                return
        self.blocks = self._cache_blocks(memory.available())
        memory.require(
            self.blocks * _block_bytes(layout),
            f"a cache for {self.blocks * BLOCK_TOKENS} tokens as {layout.type.name.lower()}",
            "choose a smaller context or cache, or a smaller kv_type",
        )
        self.backend = self._on_cpu()

    def _cache_blocks(self, room: int) -> int:
        """For all texts: as asked for, or four contexts, if they take a quarter of the room."""
        one = -(-self._context // BLOCK_TOKENS)
        if self._cache_tokens is not None:
            return max(-(-self._cache_tokens // BLOCK_TOKENS), one)
        share = room // (_MEMORY_SHARE * _block_bytes(self._layout))
        return max(min(_CONTEXTS * one, share), one)

    def _on_cpu(self) -> Backend:
        try:
            return CpuBackend(
                self._graph,
                self._file,
                self._layout,
                blocks=self.blocks,
                context=self._context,
                threads=self._threads,
                max_tokens=STEP_TOKENS if self._graph.causal else self._context,
            )
        except IngotError:
            raise
        except MemoryError as error:  # a limit of the process, which the system does not know
            raise MemoryShortageError(
                f"{self._file.path}: there is no memory for a context of {self._context} tokens; "
                "choose a smaller context"
            ) from error
        except ValueError as error:  # what the native program refuses
            raise ModelError(f"{self._file.path} cannot be run on the CPU: {error}") from error


def _block_bytes(layout: KvLayout) -> int:
    return sum(group.block_bytes for group in layout.groups)
