"""`ingot warm`: compile the GPU kernels of a model, so that it opens quickly from then on."""

import time

from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.model_options import (
    ContextOption,
    DeviceOption,
    GpuLayersOption,
    GpuSplitOption,
    KvTypeOption,
    ParallelOption,
)
from ingot.cli.shared.open_model import open_llm, parse_gpu_layers, parse_gpu_split, show_placement
from ingot.cli.shared.output import notice
from ingot.errors import ConfigError


def command(
    model: ModelOption = None,
    device: DeviceOption = "cuda",
    context: ContextOption = None,
    kv_type: KvTypeOption = "f16",
    gpu_layers: GpuLayersOption = None,
    gpu_split: GpuSplitOption = None,
    parallel: ParallelOption = None,
) -> None:
    """Compile the GPU kernels of a model and keep them on the disk.

    Kernels depend on the model, the context, the KV cache and the number of requests: give the
    options that `ingot serve` will get. The cache is Triton's (TRITON_CACHE_DIR, or ~/.triton); it
    tells GPUs, versions of Triton and of Ingot's kernels apart.
    """
    if device == "cpu":
        raise ConfigError("the CPU has nothing to compile: take --device cuda")
    path = locate(model)
    started = time.perf_counter()
    with open_llm(
        path,
        device=device,
        context=context,
        kv_type=kv_type,
        gpu_layers=parse_gpu_layers(gpu_layers),
        gpu_split=parse_gpu_split(gpu_split),
        max_running=parallel,
    ) as llm:
        show_placement(llm.engine.model)
        stats = llm.stats
    notice(
        f"{stats.compilations} kernels ready and {stats.captures} captures in "
        f"{time.perf_counter() - started:.1f} s"
    )
