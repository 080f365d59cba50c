"""`ingot inspect`: what is inside a GGUF file, for a person or (`--json`) for a program."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from ingot.cli import inspect_view
from ingot.cli.inspect_json import model_json, tensor_json
from ingot.cli.models import MODEL_HELP, locate
from ingot.cli.summary import ModelSummary
from ingot.cli.tensor_statistics import statistics
from ingot.cli.terminal import console
from ingot.cli.text import write_json
from ingot.errors import ConfigError, GgufError
from ingot.gguf import GgufLoader, LazyTensor
from ingot.graph.kv_type import KvType
from ingot.memory_estimate import estimate_memory


def command(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help=MODEL_HELP)] = None,
    *,
    context: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens to reckon memory for; default: what the model allows."),
    ] = None,
    kv_type: Annotated[KvType, typer.Option(help="Type of the KV cache.")] = KvType.F16,
    tensors: Annotated[bool, typer.Option("--tensors", help="Show every tensor.")] = False,
    tensor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show statistics and a histogram of one tensor."),
    ] = None,
    graph: Annotated[
        bool,
        typer.Option(
            "--graph", help="Show the operations that run it, and what their values take."
        ),
    ] = False,
    unfused: Annotated[
        bool, typer.Option("--unfused", help="With --graph: as described, before fusion.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="With --graph: draw it into FILE.svg or FILE.dot."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="GB",
            help="Show what fits a GPU of that size; here: of this machine. Needs ingot-llm[gpu].",
        ),
    ] = None,
    architectures: Annotated[
        bool,
        typer.Option("--architectures", help="List the architectures that can be run; no FILE."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")] = False,
) -> None:
    """Show what is inside a GGUF file (any part of a split one): model, memory, tensors.

    Only the header is read, except with --tensor.
    """
    if architectures:
        from ingot.cli.architectures import show_architectures  # noqa: PLC0415 (only here)

        if file is not None:
            raise ConfigError("--architectures lists what can be run; it takes no FILE")
        show_architectures(json=json)
        return
    if (unfused or output) and not graph:
        raise ConfigError("--unfused and --output go with --graph")
    with GgufLoader(locate(file)) as loader:
        if graph:
            from ingot.cli.inspect_graph import show_graph  # noqa: PLC0415 (only here)

            show_graph(loader, kv_type, fused=not unfused, output=output, json=json)
            return
        if gpu is not None:
            from ingot.cli.inspect_gpu import show_gpu  # noqa: PLC0415 (only here)

            show_gpu(console(), loader, gpu, context, kv_type, json=json)
            return
        if tensor is not None:
            _show_tensor(loader, _find(loader, tensor), json)
            return
        summary = ModelSummary.of(loader)
        memory = estimate_memory(loader, context, kv_type)
        if json:
            write_json(model_json(loader, summary, memory))
        else:
            inspect_view.show_model(console(), loader, summary, memory, every_tensor=tensors)


def _show_tensor(loader: GgufLoader, tensor: LazyTensor, json: bool) -> None:
    found = statistics(tensor)
    loader.check()  # that nobody changed the file in the meantime
    if json:
        write_json(tensor_json(tensor, found))
    else:
        inspect_view.show_tensor(console(), tensor, found)


def _find(loader: GgufLoader, name: str) -> LazyTensor:
    if name in loader.tensors:
        return loader.tensors[name]
    near = get_close_matches(name, loader.tensors, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "--tensors shows them all"
    raise GgufError(f"there is no such tensor; {hint}", field=name, path=loader.path)
