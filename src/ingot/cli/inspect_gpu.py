"""`ingot inspect --gpu`: what of a model fits a GPU, of this machine or of any size.

As JSON: gpu (bytes), context, kv_type; in bytes weights, steps and token (of the cache);
cache_tokens (of the longest cache that fits; 0 where not all layers do), layers (that fit with a
cache of one context), of_layers.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ingot.backends.backend import choose_device, require_packages
from ingot.cli.text import size, write_json
from ingot.engine.model.loaded_model import DEFAULT_CONTEXT
from ingot.errors import ConfigError
from ingot.gguf import GgufLoader
from ingot.graph.kv_type import KvType
from ingot.models import build_graph

if TYPE_CHECKING:
    from ingot.engine.model.gpu_fit import GpuFit

HERE = "here"


def show_gpu(
    out: Console,
    loader: GgufLoader,
    gpu: str,
    context: int | None,
    kv_type: KvType,
    *,
    json: bool,
) -> None:
    """Show it; `gpu` is "here", or a number of gigabytes."""
    asked = None if gpu == HERE else _bytes(gpu)
    require_packages(f"--gpu {gpu}")
    from ingot.backends.gpu import imagined_device  # noqa: PLC0415 (PyTorch)
    from ingot.engine.model.gpu_fit import fit_gpu  # noqa: PLC0415

    device = choose_device("cuda") if asked is None else None
    room = asked if device is None else device.free_memory()
    graph = build_graph(loader, context or DEFAULT_CONTEXT)
    fit = fit_gpu(
        graph,
        loader,
        kv_type,
        device or imagined_device(),
        context=min(context or DEFAULT_CONTEXT, graph.context_length),
        room=room or 0,
    )
    if json:
        write_json({"gpu": room, "kv_type": kv_type.value, **asdict(fit)})
        return
    place = f"{device.name}, {size(room or 0)} of it free" if device else f"a GPU of {gpu} GB"
    out.print(Text(f"on {place}", "bold cyan"), soft_wrap=True)
    rows = [
        ("weights", size(fit.weights), "as they lie there"),
        ("steps", size(fit.steps), "all else but the cache"),
        ("cache", size(fit.token), f"a token, as {kv_type.value}"),
        ("fits", _fits(fit), ""),
    ]
    for label, value, remark in rows:
        line = Text.assemble((f"{label:12}", "cyan"), f"{value}  ", (remark, "dim"))
        line.rstrip()
        out.print(line, soft_wrap=True)


def _fits(fit: "GpuFit") -> str:
    if not fit.layers:
        return f"not one of {fit.of_layers} layers with a cache of {fit.context} tokens"
    if fit.layers < fit.of_layers:
        return (
            f"{fit.layers} of {fit.of_layers} layers with a cache of {fit.context} tokens: "
            f"--gpu-layers {fit.layers}"
        )
    return f"all {fit.of_layers} layers, and a cache of {fit.cache_tokens} tokens"


def _bytes(gpu: str) -> int:
    try:
        found = int(float(gpu) * 1e9)
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise ConfigError(f"--gpu is {gpu!r}; it must be a number of GB, or {HERE}")
    return found
