"""`ingot inspect`: what a GGUF file contains, as text or (`--json`) for programs."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.inspect import as_text
from ingot.cli.inspect.as_json import model_json, tensor_json
from ingot.cli.inspect.tensor_statistics import statistics
from ingot.cli.shared.completion import complete_model
from ingot.cli.shared.find_model import MODEL_HELP, locate
from ingot.cli.shared.output import console, write_json
from ingot.convert import open_model
from ingot.errors import ConfigError, GgufError
from ingot.gguf import GgufLoader, LazyTensor
from ingot.graph.kv_type import KvType
from ingot.memory_estimate import estimate_copies, estimate_memory
from ingot.model_summary import ModelSummary


def command(
    file: Annotated[
        str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP, autocompletion=complete_model)
    ] = None,
    *,
    context: Annotated[
        int | None,
        typer.Option(
            min=1, help="Context length for the memory estimate. Default: the model's own."
        ),
    ] = None,
    kv_type: Annotated[KvType, typer.Option(help="Type of the KV cache.")] = KvType.F16,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    tensor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show statistics and a histogram of one tensor."),
    ] = None,
    graph: Annotated[
        bool,
        typer.Option("--graph", help="Show the computation graph and the memory of its values."),
    ] = False,
    unfused: Annotated[
        bool, typer.Option("--unfused", help="With --graph: the graph before fusion.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="With --graph: draw it to FILE.svg or FILE.dot."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="GB",
            help="Show what fits on a GPU of this size; `here`: on this machine's GPU. Needs "
            "ingot-llm[gpu].",
        ),
    ] = None,
    architectures: Annotated[
        bool,
        typer.Option("--architectures", help="List the supported architectures; takes no MODEL."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a GGUF file contains: the model, the memory it needs, its tensors.

    For a split model, name any of its files. Only the header is read, except with --tensor.
    """
    if architectures:
        from ingot.cli.inspect.architectures import show_architectures  # noqa: PLC0415 (on demand)

        if file is not None:
            raise ConfigError("--architectures takes no FILE")
        show_architectures(json=json)
        return
    if (unfused or output) and not graph:
        raise ConfigError("--unfused and --output need --graph")
    with open_model(locate(file)) as loader:
        if graph:
            from ingot.cli.inspect.graph import show_graph  # noqa: PLC0415 (on demand)

            show_graph(loader, kv_type, fused=not unfused, output=output, json=json)
            return
        if gpu is not None:
            from ingot.cli.inspect.gpu_fit import show_gpu  # noqa: PLC0415 (on demand)

            show_gpu(console(), loader, gpu, context, kv_type, json=json)
            return
        if tensor is not None:
            _show_tensor(loader, _find(loader, tensor), json)
            return
        summary = ModelSummary.of(loader)
        memory, copies = estimate_memory(loader, context, kv_type), estimate_copies(loader)
        if json:
            write_json(model_json(loader, summary, memory, copies))
        else:
            as_text.show_model(console(), loader, summary, memory, copies, every_tensor=tensors)


def _show_tensor(loader: GgufLoader, tensor: LazyTensor, json: bool) -> None:
    found = statistics(tensor)
    loader.check()  # the file may have changed while it was read
    if json:
        write_json(tensor_json(tensor, found))
    else:
        as_text.show_tensor(console(), tensor, found)


def _find(loader: GgufLoader, name: str) -> LazyTensor:
    if name in loader.tensors:
        return loader.tensors[name]
    near = get_close_matches(name, loader.tensors, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "--tensors lists them"
    raise GgufError(f"no such tensor; {hint}", field=name, path=loader.path)
