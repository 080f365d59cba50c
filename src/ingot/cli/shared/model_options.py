"""Options of every command that opens a model: threads, context, KV cache, weights, device."""

from typing import Annotated

import typer

from ingot.engine.model.loaded_model import DEFAULT_CONTEXT

ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "-t", "--threads", help="CPU threads. Default: one for each physical core it may use."
    ),
]
_CONTEXT_HELP = "Context length in tokens, prompt and answer together. Default: "
ContextOption = Annotated[
    int | None,
    typer.Option(
        "-c", "--context", help=f"{_CONTEXT_HELP}the model's own, at most {DEFAULT_CONTEXT}."
    ),
]
ServedContextOption = Annotated[
    int | None,
    typer.Option(
        "-c",
        "--context",
        help=f"{_CONTEXT_HELP}the model's own, or as much of it as the memory has room for; "
        "a line at the start says which.",
    ),
]
KvTypeOption = Annotated[
    str,
    typer.Option(
        "--kv-type",
        help="Type of the KV cache: f32, f16, bf16, q8_0; q4_0 on the CPU, fp8 on a GPU.",
    ),
]
WeightsOption = Annotated[
    str,
    typer.Option(
        "--weights",
        help="map: use the weights in the mapped file; lock: also lock them in memory; read: copy "
        "them into memory; repack: copy them in the order in which the CPU reads them fastest, "
        "while the first tokens run; auto: repack if memory allows it.",
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="How far the CPU rounds the inputs of matrix products. fast: to 8 bits "
        "for formats where this is faster; exact: to 16 bits. [fast]",
    ),
]
NumaOption = Annotated[
    str,
    typer.Option(
        "--numa",
        help="With several NUMA nodes. split: keep threads, and the rows of repacked weights that "
        "they read, to nodes; replicate: give every node all repacked weights; auto: split if "
        "there are more threads than a node has cores; off.",
    ),
]
PinThreadsOption = Annotated[
    bool, typer.Option("--pin-threads", help="Keep each thread to a core of its own (Linux).")
]
_DEVICES = (
    "cpu; cuda: an NVIDIA or AMD GPU (needs ingot-llm[gpu]); cuda:1: one of several; auto: a GPU "
    "if there is one."
)
DeviceOption = Annotated[str, typer.Option("--device", help=_DEVICES)]
ServedDeviceOption = Annotated[
    str | None, typer.Option("--device", help=f"{_DEVICES} [cpu; cuda if replicas have GPUs]")
]
GpuLayersOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-layers",
        metavar="N",
        help="Run the first N layers on the GPU and the rest on the CPU; auto: as many as fit. "
        "Default: all; with --device auto, as many as fit.",
    ),
]
GpuSplitOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-split",
        metavar="SHARES",
        help="Share these layers out among several GPUs: 1,1 gives half of them to each of two.",
    ),
]
SpeculationOption = Annotated[
    str,
    typer.Option(
        "--speculation",
        help="Guess tokens and verify them together, which changes no text. auto: only if it is "
        "faster; mtp: by layers of the model that predict several tokens; ngram: from the text "
        "itself; off.",
    ),
]
DraftOption = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="MODEL",
        help="A smaller model that guesses tokens, or an EAGLE-3 draft of the model.",
    ),
]
ParallelOption = Annotated[
    int | None,
    typer.Option(
        "-np",
        "--parallel",
        help="Requests decoded at once. Default: 32; on a GPU as many as have 1024 tokens each in "
        "a quarter of its free memory, up to 256.",
    ),
]
