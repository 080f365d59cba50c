"""Where a model runs: its backend, on the CPU or a GPU, and how large its cache becomes there."""

from ingot.backends.backend import Backend, choose_device
from ingot.backends.choosing import Chooser
from ingot.backends.cpu import CpuBackend
from ingot.engine import memory
from ingot.engine.cache_size import cache_size, require_memory
from ingot.errors import IngotError, MemoryShortageError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout

STEP_TOKENS = 512  # of a prompt; an encoder takes a whole text at once
GPU_STEP_TOKENS = 4096  # fill it, and unpack every matrix once for all of them


class Placed:
    """A backend and the size of its cache."""

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
        self._context, self._threads = context, threads
        self.on_gpu = False
        self.chooser: Chooser | None = None  # the backend, if it chooses tokens by itself
        gpu = choose_device(device)
        if gpu is not None:
            from ingot.backends.gpu import GpuBackend  # noqa: PLC0415 (PyTorch, if asked for)

            try:
                self.size = cache_size(layout, context, cache_tokens, gpu.free_memory())
                backend = GpuBackend(
                    graph,
                    file,
                    layout,
                    blocks=self.size.blocks,
                    context=context,
                    device=gpu,
                    max_tokens=min(GPU_STEP_TOKENS, -(-context // BLOCK_TOKENS) * BLOCK_TOKENS),
                )
            except (MemoryShortageError, ModelError):
                if device != "auto":
                    raise
            else:
                self.on_gpu = True
                self.backend: Backend = backend
                self.chooser = backend
                return
        self.size = cache_size(layout, context, cache_tokens, memory.available())
        require_memory(layout, self.size)
        self.backend = self._on_cpu()

    def _on_cpu(self) -> Backend:
        try:
            return CpuBackend(
                self._graph,
                self._file,
                self._layout,
                blocks=self.size.blocks,
                states=self.size.states,
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
